//! A connection in between, which counts what passes. It changes nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::Failure;

/// Counts the bytes of answers.
#[derive(Debug)]
pub(crate) struct Tap {
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

impl Tap {
    /// Between clients and the server at this address, as long as this process lives.
    pub(crate) fn to(server: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { continue };
                let counter = Arc::clone(&counter);
                thread::spawn(move || pass(from, to, &AtomicU64::new(0)));
                thread::spawn(move || pass(server, client, &counter));
            }
        });
        Ok(Self { address, received })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes of answers so far, with their heads.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Copies until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        if to.write_all(buffer.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}
