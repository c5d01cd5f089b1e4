/* Answers the requests of KVM that the node agent makes, on a machine without KVM: the API version, and file descriptors
   for a virtual machine and its processor, which nothing can be done with. Passes all others on to the kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int file, unsigned long request, unsigned long argument)
{
    switch (request) {
    case 0xAE00: /* KVM_GET_API_VERSION */
        return 12;
    case 0xAE01: /* KVM_CREATE_VM */
    case 0xAE41: /* KVM_CREATE_VCPU */
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    return syscall(SYS_ioctl, file, request, argument);
}
