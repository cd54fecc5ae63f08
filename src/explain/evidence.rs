//! Readings taken at the moment of a failure, so that a rule can later tell look-alikes apart.
//!
//! They are names and short texts in [`crate::record::Failure::facts`]: `yes`/`no`, a number, or words.
//! What could not be read is left out; a rule then says less.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::limits::{Load, is_loopback};
use crate::proc::process::{
    CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, Resource, Who, in_first_user_namespace, is_alive,
    open_files, rlimit, same_netns, status, tasks_of_user,
};
use crate::proc::sockets::TcpState;
use crate::proc::{Root, cgroup, host, sockdiag, sockets, sysctl};
use crate::strategy::contract::Endpoint;

/// The readings that rules use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Whether the socket's path exists.
    SocketExists,
    /// What the path is: `socket`, `file`, `folder`, `other`.
    SocketKind,
    /// Its permissions in octal.
    SocketMode,
    /// Its user id.
    SocketOwner,
    /// The first folder on the way that this user may not enter.
    SocketBlockedAt,
    /// Whether a process listens on that path.
    SocketListener,
    /// Connections waiting on it.
    SocketPending,
    /// Whether anything listens on the TCP address.
    TcpListener,
    /// Sockets to the address in TIME_WAIT.
    TcpTimeWait,
    /// Open connections to the address.
    TcpEstablished,
    /// Usable local ports.
    PortsUsable,
    /// The range as the kernel writes it.
    PortsRange,
    /// `net.ipv4.tcp_tw_reuse`.
    TwReuse,
    /// Whether the address is loopback.
    Loopback,
    /// The address this machine would connect from; `none` when it has none.
    SourceAddress,
    /// Soft limit of open files of the client.
    NofileSoft,
    /// Hard limit.
    NofileHard,
    /// Descriptors the client has open.
    FdsOpen,
    /// Open files of the machine.
    FileNr,
    /// `fs.file-max`.
    FileMax,
    /// The listener's backlog.
    Backlog,
    /// Connections waiting at the listener.
    BacklogQueued,
    /// `net.core.somaxconn`.
    Somaxconn,
    /// Whether the server's process runs.
    ServerAlive,
    /// Soft limit of open files of the server.
    ServerNofile,
    /// Descriptors the server has open.
    ServerFds,
    /// Whether what the server printed last tells of an overrun output buffer.
    OutputBufferLog,
    /// Tasks of this user.
    UidTasks,
    /// Soft limit of processes of this user.
    Nproc,
    /// Whether a capability exempts this process from it.
    NprocExempt,
    /// Tasks of the control group with the least room.
    GroupTasks,
    /// Its `pids.max`.
    GroupPidsMax,
    /// Tasks of the machine.
    Tasks,
    /// `kernel.pid_max`.
    PidMax,
    /// `kernel.threads-max`.
    ThreadsMax,
    /// Whether client and server share a network namespace.
    NetnsSame,
    /// User id of this process.
    Uid,
    /// `kernel.yama.ptrace_scope`.
    PtraceScope,
    /// Whether this process has CAP_SYS_PTRACE.
    CapPtrace,
    /// Seccomp mode of this process.
    Seccomp,
}

impl Fact {
    /// The name in a record.
    pub fn key(self) -> &'static str {
        match self {
            Fact::SocketExists => "socket.exists",
            Fact::SocketKind => "socket.kind",
            Fact::SocketMode => "socket.mode",
            Fact::SocketOwner => "socket.owner",
            Fact::SocketBlockedAt => "socket.blocked_at",
            Fact::SocketListener => "socket.listener",
            Fact::SocketPending => "socket.pending",
            Fact::TcpListener => "tcp.listener",
            Fact::TcpTimeWait => "tcp.time_wait",
            Fact::TcpEstablished => "tcp.established",
            Fact::PortsUsable => "ports.usable",
            Fact::PortsRange => "ports.range",
            Fact::TwReuse => "ports.tw_reuse",
            Fact::Loopback => "address.loopback",
            Fact::SourceAddress => "address.source",
            Fact::NofileSoft => "client.nofile_soft",
            Fact::NofileHard => "client.nofile_hard",
            Fact::FdsOpen => "client.fds_open",
            Fact::FileNr => "fs.file-nr",
            Fact::FileMax => "fs.file-max",
            Fact::Backlog => "listener.backlog",
            Fact::BacklogQueued => "listener.queued",
            Fact::Somaxconn => "net.core.somaxconn",
            Fact::ServerAlive => "server.alive",
            Fact::ServerNofile => "server.nofile",
            Fact::ServerFds => "server.fds_open",
            Fact::OutputBufferLog => "server.log_output_buffer",
            Fact::UidTasks => "user.tasks",
            Fact::Nproc => "user.nproc",
            Fact::NprocExempt => "user.nproc_exempt",
            Fact::GroupTasks => "cgroup.pids.current",
            Fact::GroupPidsMax => "cgroup.pids.max",
            Fact::Tasks => "tasks",
            Fact::PidMax => "kernel.pid_max",
            Fact::ThreadsMax => "kernel.threads-max",
            Fact::NetnsSame => "server.same_netns",
            Fact::Uid => "uid",
            Fact::PtraceScope => "kernel.yama.ptrace_scope",
            Fact::CapPtrace => "cap_sys_ptrace",
            Fact::Seccomp => "seccomp",
        }
    }
}

/// Facts being gathered.
#[derive(Default)]
struct Facts(BTreeMap<String, String>);

impl Facts {
    fn put(&mut self, fact: Fact, value: impl ToString) {
        self.0.insert(fact.key().to_owned(), value.to_string());
    }

    fn put_known<T: ToString, E>(&mut self, fact: Fact, value: Result<T, E>) {
        if let Ok(value) = value {
            self.put(fact, value);
        }
    }

    fn yes(&mut self, fact: Fact, value: bool) {
        self.put(fact, if value { "yes" } else { "no" });
    }
}

/// Reads what bears on a failed connection or operation: the socket's path or the TCP address, ports,
/// descriptors, the listener's queue, and whether the server lives. Call it as soon as the failure is
/// seen; it takes some milliseconds with a full table of sockets and prints nothing.
///
/// `endpoint` is `None` for a client without a server. `client` is the worker while it still exists (else this process, whose limits it had), `server` the
/// server's process when it is known.
pub fn collect(
    root: &Root,
    endpoint: Option<&Endpoint>,
    client: Option<i32>,
    server: Option<i32>,
) -> BTreeMap<String, String> {
    let mut facts = Facts::default();
    match endpoint {
        Some(Endpoint::Unix { path, .. }) => unix_facts(root, path, &mut facts),
        Some(Endpoint::Tcp { host, port, .. }) => tcp_facts(root, host, *port, &mut facts),
        None => {}
    }
    let who = client.map_or(Who::Me, Who::Pid);
    let limit =
        rlimit(root, who, Resource::OpenFiles).or_else(|_| rlimit(root, Who::Me, Resource::OpenFiles));
    if let Ok(limit) = limit {
        facts.put_known(Fact::NofileSoft, limit.soft.ok_or(()));
        facts.put_known(Fact::NofileHard, limit.hard.ok_or(()));
    }
    if client.is_some() {
        facts.put_known(Fact::FdsOpen, open_files(root, who));
    }
    if let Ok(file_nr) = sysctl::integers(root, "fs.file-nr", 3) {
        facts.put(Fact::FileNr, file_nr[0]);
        facts.put(Fact::FileMax, file_nr[2]);
    }
    facts.put_known(Fact::Somaxconn, sysctl::integer(root, "net.core.somaxconn"));
    if let Some(endpoint) = endpoint
        && let Ok(listeners) = sockdiag::listeners(root)
        && let Some(listener) = Load::to(endpoint).listener(&listeners)
    {
        facts.put(Fact::Backlog, listener.backlog);
        facts.put(Fact::BacklogQueued, listener.queued);
    }
    if let Some(pid) = server {
        if let Ok(alive) = is_alive(root, pid) {
            facts.yes(Fact::ServerAlive, alive);
        }
        if let Ok(limit) = rlimit(root, Who::Pid(pid), Resource::OpenFiles) {
            facts.put_known(Fact::ServerNofile, limit.soft.ok_or(()));
        }
        facts.put_known(Fact::ServerFds, open_files(root, Who::Pid(pid)));
        if let Some(tail) = last_output(root, pid) {
            facts.yes(Fact::OutputBufferLog, tail.contains("output buffer limits"));
        }
        if let Ok(same) = same_netns(root, pid) {
            facts.yes(Fact::NetnsSame, same);
        }
    }
    facts.put_known(Fact::Uid, status(root, Who::Me).map(|status| status.uid));
    facts.0
}

/// Reads what may forbid another process: the limits of the user, of the control groups, of the machine.
pub fn forking(root: &Root) -> BTreeMap<String, String> {
    let mut facts = Facts::default();
    if let Ok(status) = status(root, Who::Me) {
        facts.put(Fact::Uid, status.uid);
        facts.put_known(Fact::UidTasks, tasks_of_user(root, status.uid));
        facts.yes(
            Fact::NprocExempt,
            in_first_user_namespace(root).unwrap_or(true)
                && (status.uid == 0 || status.has(CAP_SYS_ADMIN) || status.has(CAP_SYS_RESOURCE)),
        );
    }
    if let Ok(limit) = rlimit(root, Who::Me, Resource::Processes) {
        facts.put_known(Fact::Nproc, limit.soft.ok_or(()));
    }
    let levels = cgroup::pids(root, Who::Me).unwrap_or_default();
    let bounded = levels
        .iter()
        .filter_map(|level| Some((level.max?, level.current?)));
    if let Some((max, current)) = bounded.min_by_key(|(max, current)| max.saturating_sub(*current)) {
        facts.put(Fact::GroupPidsMax, max);
        facts.put(Fact::GroupTasks, current);
    }
    facts.put_known(Fact::Tasks, host::tasks(root));
    facts.put_known(Fact::PidMax, sysctl::integer(root, "kernel.pid_max"));
    facts.put_known(Fact::ThreadsMax, sysctl::integer(root, "kernel.threads-max"));
    facts.0
}

/// The end of what the server printed, when that went to a file.
fn last_output(root: &Root, pid: i32) -> Option<String> {
    const TAIL: u64 = 16 << 10;
    if !root.is_live() {
        return None;
    }
    let path = root.path(&Who::Pid(pid).file("fd/1"));
    let is_file = std::fs::metadata(&path).ok()?.is_file();
    let mut file = is_file.then(|| std::fs::File::open(&path))?.ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    Some(String::from_utf8_lossy(&tail).into_owned())
}

/// Reads what may forbid tracing.
pub fn tracing(root: &Root) -> BTreeMap<String, String> {
    let mut facts = Facts::default();
    facts.put_known(
        Fact::PtraceScope,
        sysctl::integer(root, "kernel.yama.ptrace_scope"),
    );
    if let Ok(status) = status(root, Who::Me) {
        facts.put(Fact::Uid, status.uid);
        facts.yes(Fact::CapPtrace, status.has(CAP_SYS_PTRACE));
        facts.put_known(Fact::Seccomp, status.seccomp.ok_or(()));
    }
    facts.0
}

fn unix_facts(root: &Root, path: &str, facts: &mut Facts) {
    if let Ok(sockets) = sockets::unix(root, Who::Me) {
        let ours = || sockets.iter().filter(|socket| socket.name == path);
        facts.yes(Fact::SocketListener, ours().any(|socket| socket.listens));
        facts.put(
            Fact::SocketPending,
            ours()
                .filter(|socket| socket.inode == 0 && !socket.listens)
                .count(),
        );
    }
    if path.starts_with('@') {
        return;
    }
    let real = root.path(path);
    match std::fs::metadata(&real) {
        Ok(metadata) => {
            let kind = metadata.file_type();
            facts.yes(Fact::SocketExists, true);
            facts.put(
                Fact::SocketKind,
                if kind.is_socket() {
                    "socket"
                } else if kind.is_file() {
                    "file"
                } else if kind.is_dir() {
                    "folder"
                } else {
                    "other"
                },
            );
            facts.put(Fact::SocketMode, format!("{:04o}", metadata.mode() & 0o7777));
            facts.put(Fact::SocketOwner, metadata.uid());
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => facts.yes(Fact::SocketExists, false),
        Err(_) => {
            let blocked = real.ancestors().skip(1).collect::<Vec<&Path>>();
            let first = blocked.iter().rev().find(|folder| {
                nix::unistd::access(**folder, nix::unistd::AccessFlags::X_OK)
                    == Err(nix::errno::Errno::EACCES)
            });
            if let Some(folder) = first {
                facts.put(Fact::SocketBlockedAt, folder.display());
            }
        }
    }
}

fn tcp_facts(root: &Root, host: &str, port: u16, facts: &mut Facts) {
    let loopback = is_loopback(host);
    facts.yes(Fact::Loopback, loopback);
    let literal: Option<IpAddr> = host.parse().ok();
    let is_host = |ip: IpAddr| match literal {
        Some(literal) => ip == literal.to_canonical(),
        None if loopback => ip.is_loopback(),
        // A name whose address is not known here: the port has to do.
        None => true,
    };
    if let Ok(sockets) = sockets::tcp(root, Who::Me) {
        let to = |state| {
            sockets
                .iter()
                .filter(|s| s.state == state && s.remote.port() == port && is_host(s.remote.ip()))
                .count()
        };
        facts.put(Fact::TcpTimeWait, to(TcpState::TimeWait));
        facts.put(Fact::TcpEstablished, to(TcpState::Established));
        // What listens on another machine cannot be seen from here.
        if loopback || (literal.is_some() && sockets.iter().any(|s| is_host(s.local.ip()))) {
            let listens = sockets.iter().any(|s| {
                s.state == TcpState::Listen
                    && s.local.port() == port
                    && (s.local.ip().is_unspecified() || is_host(s.local.ip()))
            });
            facts.yes(Fact::TcpListener, listens);
        }
    }
    if let Ok(ports) = sysctl::local_ports(root) {
        facts.put(Fact::PortsUsable, ports.usable);
        facts.put(Fact::PortsRange, format!("{}-{}", ports.low, ports.high));
    }
    facts.put_known(Fact::TwReuse, sysctl::integer(root, "net.ipv4.tcp_tw_reuse"));
    if root.is_live() {
        // Connecting a datagram socket sends nothing; the kernel only picks the source address.
        let any: IpAddr = match literal {
            Some(IpAddr::V6(_)) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
            Some(IpAddr::V4(_)) | None => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        };
        let source = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect((host, port))?;
            socket.local_addr()
        });
        facts.put(
            Fact::SourceAddress,
            source.map_or_else(|_| "none".to_owned(), |address| address.ip().to_string()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    fn unix(path: &Path) -> Endpoint {
        Endpoint::Unix {
            path: path.to_str().unwrap().to_owned(),
            user: None,
            password: None,
        }
    }

    fn get(facts: &BTreeMap<String, String>, fact: Fact) -> Option<&str> {
        facts.get(fact.key()).map(String::as_str)
    }

    #[test]
    fn a_stale_socket_differs_from_a_missing_and_a_live_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let missing = collect(&Root::live(), Some(&unix(&path)), None, None);
        assert_eq!(get(&missing, Fact::SocketExists), Some("no"));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let live = collect(&Root::live(), Some(&unix(&path)), None, None);
        assert_eq!(get(&live, Fact::SocketListener), Some("yes"));
        assert_eq!(get(&live, Fact::SocketKind), Some("socket"));
        drop(listener);
        let stale = collect(&Root::live(), Some(&unix(&path)), None, None);
        assert_eq!(get(&stale, Fact::SocketExists), Some("yes"));
        assert_eq!(get(&stale, Fact::SocketListener), Some("no"));
    }

    #[test]
    fn a_tcp_address_is_read_with_its_listener_and_source() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint = Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port,
            user: None,
            password: Some("hunter2".into()),
        };
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let me = std::process::id() as i32;
        let facts = collect(&Root::live(), Some(&endpoint), Some(me), Some(me));
        assert_eq!(get(&facts, Fact::TcpListener), Some("yes"));
        assert_eq!(get(&facts, Fact::TcpEstablished), Some("1"));
        assert_eq!(get(&facts, Fact::SourceAddress), Some("127.0.0.1"));
        assert_eq!(get(&facts, Fact::ServerAlive), Some("yes"));
        assert!(get(&facts, Fact::FdsOpen).is_some());
        assert!(!format!("{facts:?}").contains("hunter2"));
        drop((listener, _client));
        let facts = collect(&Root::live(), Some(&endpoint), None, None);
        assert_eq!(get(&facts, Fact::TcpListener), Some("no"));
    }

    #[test]
    fn an_empty_recording_gives_no_facts_it_does_not_have() {
        let endpoint = Endpoint::Tcp {
            host: "10.0.0.5".into(),
            port: 6379,
            user: None,
            password: None,
        };
        let facts = collect(&Tree::new().root(), Some(&endpoint), Some(1), Some(2));
        assert_eq!(get(&facts, Fact::TcpTimeWait), None);
        assert_eq!(get(&facts, Fact::PortsUsable), None);
        // A process that has no folder is not alive; that much an empty recording says.
        assert_eq!(get(&facts, Fact::Loopback), Some("no"));
    }

    #[test]
    fn what_may_forbid_tracing_is_read() {
        assert!(tracing(&Root::live()).contains_key(Fact::Uid.key()));
    }
}
