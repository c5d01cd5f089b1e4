//! Whether a file system is read-only for everybody, and not only where this process has it mounted: a Job that
//! checks a node gets its folders read-only.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Whether the file system of a path is read-only; `false` if the table of mounts does not say.
///
/// # Errors
/// If the path or the table cannot be read.
pub(crate) fn is_file_system_read_only(path: &Path) -> io::Result<bool> {
    let device = fs::metadata(path)?.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(options(&table, &number).is_some_and(|options| options.split(',').any(|it| it == "ro")))
}

/// The options of the file system with this number (`MAJOR:MINOR`), by proc_pid_mountinfo(5): each line has those
/// of a mount before ` - `, and those of its file system at its end.
fn options<'a>(table: &'a str, number: &str) -> Option<&'a str> {
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    line.split_once(" - ")?.1.split(' ').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_file_system_are_not_those_of_a_mount() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                     36 22 8:1 /etc /host/etc ro,relatime master:1 - ext4 /dev/sda1 rw\n\
                     40 22 7:0 / /usr ro,nodev - squashfs /dev/loop0 ro,errors=continue\n";
        assert_eq!(options(table, "8:1"), Some("rw,errors=remount-ro"));
        assert_eq!(options(table, "7:0"), Some("ro,errors=continue"));
        assert_eq!(options(table, "9:9"), None);
    }
}
