//! Asks memcached for its statistics: the one question its limits need.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::strategy::contract::Endpoint;

/// Longest wait, for the connection and for the whole answer.
const LIMIT: Duration = Duration::from_secs(5);
/// `stats` has some three kilobytes.
const LONGEST: usize = 64 << 10;

/// The answer to `stats`, by name.
///
/// # Errors
/// A server that cannot be reached, does not answer within 5 s, or is not memcached.
pub fn stats(endpoint: &Endpoint) -> io::Result<BTreeMap<String, String>> {
    match endpoint {
        Endpoint::Unix { path, .. } => {
            let stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(LIMIT))?;
            ask(stream, |stream, left| stream.set_read_timeout(Some(left)))
        }
        Endpoint::Tcp { host, port, .. } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, LIMIT) {
                    Ok(stream) => {
                        stream.set_write_timeout(Some(LIMIT))?;
                        return ask(stream, |stream, left| stream.set_read_timeout(Some(left)));
                    }
                    Err(e) => last = e,
                }
            }
            Err(last)
        }
    }
}

fn ask<S: Read + Write>(
    mut stream: S,
    wait: impl Fn(&S, Duration) -> io::Result<()>,
) -> io::Result<BTreeMap<String, String>> {
    let deadline = Instant::now() + LIMIT;
    stream.write_all(b"stats\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0_u8; 4096];
    while !answer.ends_with(b"END\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no end of its answer to stats",
            ));
        }
        wait(&stream, left)?;
        match stream.read(&mut buffer)? {
            0 => break,
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the server's answer to stats is not memcached's",
        )
    })
}

/// Lines of `STAT name value`, ended by `END`.
fn parse(answer: &str) -> Option<BTreeMap<String, String>> {
    let lines = answer.strip_suffix("END\r\n")?.lines();
    lines
        .map(|line| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_counts() {
        let whole = "STAT pid 5\r\nSTAT max_connections 1024\r\nEND\r\n";
        assert_eq!(parse(whole).unwrap()["max_connections"], "1024");
        assert_eq!(parse("END\r\n").unwrap().len(), 0);
        for odd in [
            "",
            "STAT pid 5\r\n",
            "-ERR unknown command\r\n",
            "ERROR\r\nEND\r\n",
            "STAT pid\r\nEND\r\n",
        ] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_useful_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0_u8; 7];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(b"-ERR unknown command 'stats'\r\n").unwrap();
            asked
        });
        let endpoint = Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port,
            user: None,
            password: None,
        };
        assert_eq!(stats(&endpoint).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(&server.join().unwrap(), b"stats\r\n");
    }
}
