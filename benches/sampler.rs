//! What reading queues costs while a bench runs: the CPU time of the sampler beside 10,000 sockets, and
//! how often it got to read.
//!
//! `cargo bench --bench sampler -- [SECONDS]`. It slows itself down from 50 to 10 readings a second rather
//! than take more than a hundredth of one CPU.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use systally::run::sampler::{Sampler, Watch};
use systally::strategy::contract::Endpoint;

/// Pairs of each kind; with both ends that is four times as many sockets.
const PAIRS: usize = 2_500;

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(5);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    if hard < 4 * PAIRS as u64 + 100 {
        return println!("SKIP: the limit of open files is {hard}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let mut held: Vec<(TcpStream, TcpStream, UnixStream, UnixStream)> = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let (ours, local) = (
            TcpStream::connect(address).unwrap(),
            UnixStream::connect(&path).unwrap(),
        );
        held.push((ours, tcp.accept().unwrap().0, local, unix.accept().unwrap().0));
    }
    let watch = Watch {
        endpoints: vec![
            Endpoint::Tcp {
                host: "127.0.0.1".to_owned(),
                port: address.port(),
                user: None,
                password: None,
            },
            Endpoint::Unix {
                path: path.to_str().unwrap().to_owned(),
                user: None,
                password: None,
            },
        ],
        server: Some(std::process::id().cast_signed()),
    };
    let sampler = Sampler::start(watch);
    sampler.row(Some(0));
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    let wall = begun.elapsed().as_secs_f64();
    let sampled = sampler.so_far().unwrap();
    println!(
        "{} sockets: {:.1} readings a second, {:.2} % of one CPU, {:.0} us a reading",
        4 * held.len(),
        sampled.samples as f64 / wall,
        sampled.cpu_ns.as_secs_f64() * 100.0 / wall,
        sampled.cpu_ns.as_secs_f64() * 1e6 / sampled.samples as f64
    );
}
