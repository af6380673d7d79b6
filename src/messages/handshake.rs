//! The handshake of a TCP connection between two ranks: its sender authenticates with the job's secret and names its rank.

use rustix::net::sockopt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of the secret that the ranks of one job share.
pub const TOKEN_BYTES: usize = 16;
/// Bytes of the handshake: the secret and the sender's rank.
const HELLO_BYTES: usize = TOKEN_BYTES + 4;
/// Time that an accepted connection may take for its handshake.
const HELLO_WITHIN: Duration = Duration::from_secs(1);
/// Silence after which the kernel probes a connection, the interval of its probes, and how many stay without answer.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// The handshake of a sender.
pub(super) fn hello(token: [u8; TOKEN_BYTES], rank: usize) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..TOKEN_BYTES].copy_from_slice(&token);
    hello[TOKEN_BYTES..].copy_from_slice(&(rank as u32).to_le_bytes());
    hello
}

/// Connects to a rank and sends the handshake.
pub(super) fn open(address: SocketAddr, hello: [u8; HELLO_BYTES], end: Option<Instant>) -> io::Result<TcpStream> {
    let mut stream = match end {
        // No time left is a microsecond: an answer that is there already counts.
        Some(end) => TcpStream::connect_timeout(
            &address,
            end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)),
        )?,
        None => TcpStream::connect(address)?,
    };
    stream.write_all(&hello)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Accepts a connection that is waiting, if there is one, and closes it unless its handshake is right. Returns whether there was one.
pub(super) fn accept(
    listener: &TcpListener,
    token: [u8; TOKEN_BYTES],
    incoming: &mut [Option<TcpStream>],
) -> io::Result<bool> {
    let mut stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
        // The other end has closed it before it was accepted.
        Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Ok(false),
        Err(error) => return Err(error),
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO_WITHIN))?;
    let mut received = [0; HELLO_BYTES];
    if stream.read_exact(&mut received).is_err() {
        return Ok(true);
    }
    let (secret, [r0, r1, r2, r3, ..]) = received.split_at(TOKEN_BYTES) else { return Ok(true) };
    let place = incoming.get_mut(u32::from_le_bytes([*r0, *r1, *r2, *r3]) as usize);
    if let Some(place) = place.filter(|place| secret == token && place.is_none()) {
        stream.set_nonblocking(true)?;
        probe(&stream)?;
        *place = Some(stream);
    }
    Ok(true)
}

/// Enables keepalive probes, by which the kernel notices that the other host is gone.
fn probe(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{accept, hello, open};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Accepts a connection on which this was sent. Returns which ranks are connected then, and the stranger's end.
    fn after(listener: &TcpListener, sent: &[u8], known: &mut [Option<TcpStream>]) -> (Vec<bool>, TcpStream) {
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(sent).unwrap();
        assert!(accept(listener, [7; 16], known).unwrap());
        (known.iter().map(Option::is_some).collect(), stream)
    }

    #[test]
    fn connections_without_the_secret_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut known = [None, None];
        let [wrong, no_rank] = [hello([8; 16], 1), hello([7; 16], 2)];
        for sent in [&wrong[..], &no_rank, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"short"] {
            let (connected, mut stranger) = after(&listener, sent, &mut known);
            assert_eq!(connected, [false, false], "{sent:?}");
            // What was not read makes the kernel reset the connection.
            assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)), "{sent:?}: still open");
        }
        let mut first = open(listener.local_addr().unwrap(), hello([7; 16], 1), None).unwrap();
        assert!(accept(&listener, [7; 16], &mut known).unwrap());
        first.write_all(b"first").unwrap();
        // Nobody takes the place of a rank that is connected.
        let (connected, _) = after(&listener, &hello([7; 16], 1), &mut known);
        let mut received = [0; 5];
        known[1].as_mut().unwrap().set_nonblocking(false).unwrap();
        known[1].as_mut().unwrap().read_exact(&mut received).unwrap();
        assert_eq!((connected, &received), (vec![false, true], b"first"));
    }
}
