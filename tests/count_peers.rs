//! What a descriptor leads to, and the connects, round trips and bytes that follow from it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::io::{Read, Write};

use common::guest;
use counting::{can_trace, count, count_with, everything, of, only};
use systally::engine::{Exit, Request};
use systally::tally::{Errno, Tally};

/// Sends back what it gets, for every connection, until the test ends.
fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 64];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

fn tcp_server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
    port
}

/// A port that nobody listens on.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn check(run_loop: &Tally) {
    assert_eq!(run_loop.connects, 5, "connects");
    assert_eq!(run_loop.sends, 13, "sends");
    assert_eq!(run_loop.receives, 11, "receives");
    assert_eq!(run_loop.round_trips, 11, "round trips");
}

#[test]
fn traffic_over_tcp_is_attributed() {
    let Some(program) = guest("sockets") else { return };
    if !can_trace() {
        return;
    }
    let (port, closed) = (tcp_server(), closed_port());
    let server = format!("127.0.0.1:{port}");
    let outcome = count(&[
        program.to_str().unwrap(),
        "tcp",
        &port.to_string(),
        &closed.to_string(),
    ]);
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    check(&outcome.tallies.known().unwrap().run_loop);

    let received = of(&outcome, "recvfrom");
    assert_eq!((received.calls, received.peeks), (11, 2));
    assert_eq!(received.errors[&Errno(libc::EAGAIN)], 1);
    assert_eq!(received.bytes, 12 + 5 + 7 + 4 + 3 + 8);
    assert_eq!(received.peers[&server], 11);
    assert_eq!(received.peers.len(), 1);
    let sent = of(&outcome, "sendto");
    assert_eq!((sent.calls, sent.bytes), (5, 13));
    assert_eq!(sent.peers[&server], 4);
    assert_eq!(sent.peers["127.0.0.1:9"], 1);
    let written = of(&outcome, "write");
    assert_eq!(
        (
            written.peers[&server],
            written.peers["pipe"],
            written.peers["eventfd"]
        ),
        (4, 1, 1)
    );
    assert_eq!(of(&outcome, "writev").peers[&server], 1);
    let read = of(&outcome, "read");
    assert_eq!(
        (read.peers[&server], read.peers["pipe"], read.peers["eventfd"]),
        (2, 1, 1)
    );
    assert_eq!(of(&outcome, "sendmsg").bytes, 5);
    assert_eq!(of(&outcome, "recvmsg").bytes, 5);
    assert_eq!(of(&outcome, "sendmmsg").bytes, 7);
    assert_eq!(of(&outcome, "sendfile").peers[&server], 1);
    assert!(of(&outcome, "pread64").peers["file"] >= 1);
    let connects = of(&outcome, "connect");
    assert_eq!(connects.peers[&server], 5);
    assert_eq!(connects.peers[&format!("127.0.0.1:{closed}")], 1);
    assert_eq!(connects.errors[&Errno(libc::ECONNREFUSED)], 1);
    assert_eq!(connects.errors[&Errno(libc::EINPROGRESS)], 1);
}

#[test]
fn traffic_over_a_unix_socket_is_attributed() {
    let Some(program) = guest("sockets") else { return };
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
    let missing = folder.path().join("missing");
    let outcome = count(&[
        program.to_str().unwrap(),
        "unix",
        path.to_str().unwrap(),
        missing.to_str().unwrap(),
    ]);
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    check(&outcome.tallies.known().unwrap().run_loop);
    let name = format!("unix:{}", path.display());
    assert_eq!(of(&outcome, "recvfrom").peers[&name], 11);
    let connects = of(&outcome, "connect");
    assert_eq!(connects.peers[&name], 5);
    assert_eq!(connects.errors[&Errno(libc::ENOENT)], 1);
    assert_eq!(connects.peers[&format!("unix:{}", missing.display())], 1);
}

#[test]
fn peers_are_found_without_seeing_the_connect() {
    let Some(program) = guest("sockets") else { return };
    if !can_trace() {
        return;
    }
    let (port, closed) = (tcp_server(), closed_port());
    let server = format!("127.0.0.1:{port}");
    let request = Request {
        selection: only(&["sendto", "recvfrom", "write", "read"]),
        ..everything()
    };
    let argv = [
        program.to_str().unwrap(),
        "tcp",
        &port.to_string(),
        &closed.to_string(),
    ];
    let outcome = count_with(&argv, &request);
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    let names: Vec<String> = counting::by_name(outcome.tallies.known().unwrap())
        .into_keys()
        .collect();
    assert_eq!(
        names,
        ["read", "recvfrom", "sendto", "write"],
        "nothing else is counted"
    );
    assert_eq!(of(&outcome, "recvfrom").peers[&server], 11);
    let sent = of(&outcome, "sendto");
    assert_eq!((sent.peers[&server], sent.peers["127.0.0.1:9"]), (4, 1));
    let written = of(&outcome, "write");
    assert_eq!(
        (
            written.peers[&server],
            written.peers["pipe"],
            written.peers["eventfd"]
        ),
        (4, 1, 1)
    );
    let run_loop = &outcome.tallies.known().unwrap().run_loop;
    // The turns whose send and receive are both among the chosen calls.
    assert_eq!(run_loop.round_trips, 3 + 2 + 1 + 1);
}
