//! Servers from start to end, and what their counters say, against real processes.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod server_support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use server_support::{
    LIMIT, ROLE, Raw, Role, be_responder, built_in, eventually, is_running, options, port, private,
    private_with, script, socket,
};
use systally::record::ServerOrigin;
use systally::run::interrupt::Interrupt;
use systally::server::{
    Health, PrivateOptions, Server, ServerChoice, ServerError, ServerProgram, Target, Trouble,
};
use systally::strategy::contract::{Endpoint, Transport};

/// What this binary does as a child of one of its own tests.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let tell = |line: String| {
        std::io::stdout()
            .write_all(format!("\n{line}\n").as_bytes())
            .unwrap()
    };
    let auto = || ServerChoice::Auto {
        prefer: None,
        options: options(),
    };
    let start = |interrupt: &Interrupt| {
        let choice = if role.contains("built-in") {
            ServerChoice::BuiltIn { options: options() }
        } else {
            auto()
        };
        let server = Server::start(choice, interrupt).unwrap();
        tell(format!("server {} {}", server.pid().unwrap(), socket(&server)));
        server
    };
    match role.as_str() {
        "responder" => be_responder(),
        // Ends in order, as a command does after Ctrl-C.
        "owner" | "owner-built-in" => {
            let interrupt = Interrupt::install().unwrap();
            let _server = start(&interrupt);
            while !interrupt.requested() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        "panics" => {
            let _server = start(&Interrupt::never());
            panic!("as planned");
        }
        // Starts from another thread, which ends long before the server should.
        "thread" => {
            let server =
                std::thread::scope(|scope| scope.spawn(|| start(&Interrupt::never())).join().unwrap());
            std::thread::sleep(Duration::from_millis(300));
            tell(format!("health {}", private_health(server)));
        }
        "start" => tell(match Server::start(auto(), &Interrupt::never()) {
            Ok(server) => format!("result {server}"),
            Err(error) => format!("result error: {error}"),
        }),
        // As a user who owns nothing, when this process may become one.
        "nobody" => {
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setuid(nix::unistd::Uid::from_raw(65534)).unwrap();
            }
            let path = std::env::var("SYSTALLY_TEST_PATH").unwrap();
            tell(format!("result {}", external(vec![unix(&path)]).unwrap_err()));
        }
        "prefer" => {
            let choice = ServerChoice::Auto {
                prefer: Some(ServerProgram::Valkey),
                options: options(),
            };
            tell(match Server::start(choice, &Interrupt::never()) {
                Ok(server) => format!("result {server}"),
                Err(error) => format!("result error: {error}"),
            });
        }
        other => panic!("no role {other}"),
    }
}

fn private_health(mut server: Server) -> Health {
    server.describe_alive()
}

fn folder_of(server: &Server) -> PathBuf {
    Path::new(&socket(server)).parent().unwrap().to_owned()
}

fn external(endpoints: Vec<Endpoint>) -> Result<Server, ServerError> {
    Server::start(ServerChoice::External(endpoints), &Interrupt::never())
}

fn tcp(port: u16) -> Endpoint {
    Endpoint::Tcp {
        host: "127.0.0.1".into(),
        port,
        user: None,
        password: None,
    }
}

fn tcp_as(port: u16, user: Option<&str>, password: &str) -> Endpoint {
    Endpoint::Tcp {
        host: "127.0.0.1".into(),
        port,
        user: user.map(str::to_owned),
        password: Some(password.to_owned()),
    }
}

fn unix(path: &str) -> Endpoint {
    Endpoint::Unix {
        path: path.to_owned(),
        user: None,
        password: None,
    }
}

/// Every kind of server that systally can start here.
fn each() -> Vec<Server> {
    private().into_iter().chain([built_in()]).collect()
}

#[test]
fn a_server_of_our_own_listens_twice_and_leaves_nothing() {
    for server in each() {
        let (pid, folder) = (server.pid().unwrap(), folder_of(&server));
        assert!(is_running(pid));
        for mut raw in [Raw::tcp(&server), Raw::unix(&server)] {
            assert_eq!(raw.ask("PING"), "+PONG");
        }
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let info = server.info();
        assert_ne!(info.origin, ServerOrigin::External);
        assert_eq!(info.settings["maxclients"], "10000", "{info:?}");
        assert_eq!(info.settings["tcp-backlog"], "511");
        assert_eq!(info.settings["appendonly"], "no");
        assert_eq!(info.settings["save"], "");
        assert!(!info.settings.contains_key("requirepass"));
        let line = server.to_string();
        assert!(
            line.contains(&format!(
                "(tcp 127.0.0.1:{}, unix {}",
                port(&server),
                folder.display()
            )),
            "{line}"
        );
        server.stop();
        assert!(!is_running(pid));
        assert!(!folder.exists());
    }
}

#[test]
fn it_leads_a_process_group_of_its_own() {
    for server in each() {
        let pid = Pid::from_raw(server.pid().unwrap());
        assert_eq!(
            nix::unistd::getpgid(Some(pid)),
            Ok(pid),
            "a terminal's Ctrl-C must not reach it"
        );
    }
}

#[test]
fn settings_reach_the_server() {
    let wanted = PrivateOptions {
        tcp_backlog: Some(77),
        maxclients: Some(88),
        ..options()
    };
    let built_in = Server::start(
        ServerChoice::BuiltIn {
            options: wanted.clone(),
        },
        &Interrupt::never(),
    )
    .unwrap();
    for server in private_with(wanted).into_iter().chain([built_in]) {
        assert_eq!(server.info().settings["tcp-backlog"], "77");
        assert_eq!(server.info().settings["maxclients"], "88");
    }
}

#[test]
fn a_server_may_be_handed_to_another_thread() {
    let mut server = built_in();
    let health = std::thread::spawn(move || server.describe_alive())
        .join()
        .unwrap();
    assert_eq!(health, Health::Running);
}

#[test]
fn several_servers_stand_beside_each_other() {
    let servers: Vec<Server> = (0..3).map(|_| built_in()).collect();
    let folders: std::collections::BTreeSet<PathBuf> = servers.iter().map(folder_of).collect();
    assert_eq!(folders.len(), 3);
}

fn owner(role: &str) -> Option<(Role, i32, PathBuf)> {
    if !role.contains("built-in") {
        // Says SKIP when it is not there.
        private()?;
    }
    let mut owner = Role::start(role, &[]);
    let line = owner.line("server ");
    let (pid, socket) = line.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(is_running(pid));
    Some((owner, pid, Path::new(socket).parent().unwrap().to_owned()))
}

#[test]
fn sigterm_of_the_owner_ends_the_server_in_order() {
    for role in ["owner", "owner-built-in"] {
        let Some((mut owner, pid, folder)) = owner(role) else {
            continue;
        };
        kill(Pid::from_raw(owner.pid()), Signal::SIGTERM).unwrap();
        assert!(owner.wait().success());
        assert!(!is_running(pid) && !folder.exists(), "{role}");
    }
}

#[test]
fn a_panic_of_the_owner_ends_the_server() {
    let Some((mut owner, pid, folder)) = owner("panics") else {
        return;
    };
    assert!(!owner.wait().success());
    assert!(!is_running(pid) && !folder.exists());
}

#[test]
fn sigkill_of_the_owner_ends_the_server_and_the_folder_is_swept() {
    for role in ["owner", "owner-built-in"] {
        let Some((mut owner, pid, folder)) = owner(role) else {
            continue;
        };
        kill(Pid::from_raw(owner.pid()), Signal::SIGKILL).unwrap();
        owner.wait();
        eventually("the server outlives its owner", || !is_running(pid));
        // Another test's server may have swept it already.
        drop(built_in());
        assert!(!folder.exists(), "{role}");
    }
}

#[test]
fn a_server_outlives_the_thread_that_asked_for_it() {
    if private().is_none() {
        return;
    }
    let mut role = Role::start("thread", &[]);
    assert_eq!(role.line("health "), "it is running");
}

#[test]
fn an_interrupt_while_starting_leaves_nothing() {
    let interrupt = Interrupt::install().unwrap();
    kill(Pid::this(), Signal::SIGHUP).unwrap();
    eventually("the signal does not arrive", || interrupt.requested());
    let error = Server::start(ServerChoice::BuiltIn { options: options() }, &interrupt).unwrap_err();
    assert!(matches!(error, ServerError::Interrupted), "{error}");
}

/// What `Server::start` says in a process with only these programs in PATH.
fn start_with(role: &str, programs: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in programs {
        script(&folder.path().join(name), text);
    }
    let mut role = Role::start(role, &[("PATH", folder.path().to_str().unwrap())]);
    role.line("result ")
}

#[test]
fn without_any_program_the_built_in_one_serves_and_says_so() {
    let said = start_with("start", &[]);
    assert!(said.starts_with("systally-responder "), "{said}");
    assert!(
        said.contains("built in: it serves this run, it is not Redis"),
        "{said}"
    );
    let said = start_with("prefer", &[]);
    assert!(
        said.contains("error: valkey-server is not in PATH; install it"),
        "{said}"
    );
}

#[test]
fn a_program_that_does_not_start_is_quoted() {
    let broken = "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\nprintf 'no \\033[31mluck\\n' >&2\nexit 3\n";
    let said = start_with("start", &[("redis-server", broken)]);
    assert!(
        said.contains("redis-server did not start: it ended (exit status: 3) and said last: no"),
        "{said}"
    );
    assert!(!said.contains('\u{1b}'), "{said}");
    let said = start_with("start", &[("redis-server", "\u{7f}ELF nonsense")]);
    assert!(
        said.contains("error: cannot run ") || said.contains("did not start"),
        "{said}"
    );
}

#[test]
fn a_script_around_the_server_is_seen_through() {
    let Some(real) = private() else { return };
    let kind = real.info().kind.clone();
    drop(real);
    let path = std::env::var("PATH").unwrap();
    let name = format!("{kind}-server");
    // It must find the real program although it hides it, and does not replace itself by it.
    let text = format!("#!/bin/sh\nPATH='{path}'\n{name} \"$@\"\nexit $?\n");
    let said = start_with("start", &[(&name, &text)]);
    assert!(said.contains("private"), "{said}");
}

#[test]
fn an_odd_temporary_folder_does_not_matter() {
    if private().is_none() {
        return;
    }
    let long = tempfile::tempdir().unwrap();
    let deep = long.path().join("x".repeat(120));
    let quoted = long.path().join("a\"b");
    for folder in [&deep, &quoted] {
        std::fs::create_dir(folder).unwrap();
        let mut role = Role::start("start", &[("TMPDIR", folder.to_str().unwrap())]);
        let said = role.line("result ");
        assert!(said.contains("unix /tmp/systally-"), "{said}");
    }
    let blank = long.path().join("a b");
    std::fs::create_dir(&blank).unwrap();
    let said = Role::start("start", &[("TMPDIR", blank.to_str().unwrap())]).line("result ");
    assert!(said.contains("/a b/systally-"), "{said}");
    assert!(
        std::fs::read_dir(&blank).unwrap().next().is_none(),
        "the folder is left behind"
    );
}

#[test]
fn your_own_server_is_found_by_either_address() {
    for server in each() {
        let endpoints = vec![tcp(port(&server)), unix(&socket(&server))];
        let yours = external(endpoints).unwrap();
        assert_eq!(yours.info().origin, ServerOrigin::External);
        assert_eq!(yours.info().kind, server.info().kind);
        assert_eq!(yours.pid(), server.pid(), "over TCP");
        assert!(yours.endpoint(Transport::Tcp).is_some() && yours.endpoint(Transport::Unix).is_some());
        let other_way = external(vec![unix(&socket(&server))]).unwrap();
        assert_eq!(other_way.pid(), server.pid(), "over UNIX");
        assert!(other_way.endpoint(Transport::Tcp).is_none());
        // Stopping it is not ours.
        yours.stop();
        assert!(is_running(server.pid().unwrap()));
    }
}

#[test]
fn two_servers_are_not_taken_for_one() {
    let (a, b) = (built_in(), built_in());
    let error = external(vec![tcp(port(&a)), unix(&socket(&b))]).unwrap_err();
    assert!(matches!(error, ServerError::TwoServers { .. }), "{error}");
}

#[test]
fn passwords_open_the_door_and_never_show() {
    for server in each() {
        let mut admin = Raw::tcp(&server);
        assert_eq!(admin.ask("CONFIG SET requirepass hunter2"), "+OK");
        let port = port(&server);
        let error = external(vec![tcp(port)]).unwrap_err().to_string();
        assert!(
            error.contains("NOAUTH") && error.contains("REDISCLI_AUTH"),
            "{error}"
        );
        let error = external(vec![tcp_as(port, None, "wrong-secret")]).unwrap_err();
        assert!(
            matches!(
                &error,
                ServerError::Unusable {
                    trouble: Trouble::AuthRefused(_),
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            !format!("{error} {error:?}").contains("wrong-secret"),
            "{error:?}"
        );
        let error = external(vec![tcp_as(port, Some("nobody"), "hunter2")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("refuses this user or password") && !error.contains("hunter2"),
            "{error}"
        );
        let target = Target {
            host: Some("127.0.0.1".into()),
            port: Some(port),
            password: Some("hunter2".into()),
            ..Target::default()
        };
        let yours = external(target.endpoints().unwrap()).unwrap();
        let shown = format!("{yours} {yours:?} {:?}", yours.endpoint(Transport::Tcp));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(
            yours.endpoint(Transport::Tcp).unwrap().credentials().1,
            Some("hunter2")
        );
    }
}

#[test]
fn a_server_that_hides_its_counters_is_still_used() {
    let Some(server) = private() else { return };
    let mut admin = Raw::tcp(&server);
    assert_eq!(admin.ask("ACL SETUSER joe on >pw ~* +get +set"), "+OK");
    let mut yours = external(vec![tcp_as(port(&server), Some("joe"), "pw")]).unwrap();
    assert!(
        yours.info().version.contains("INFO is not permitted"),
        "{:?}",
        yours.info()
    );
    assert_eq!(yours.pid(), None);
    let (a, b) = (yours.snapshot().unwrap(), yours.snapshot().unwrap());
    let view = b.since(&a);
    assert!(
        view.reason()
            .is_some_and(|why| why.contains("does not permit INFO")),
        "{view:?}"
    );
    let error = yours.delete_keys(&["k"]).unwrap_err().to_string();
    assert!(error.contains("it refuses: NOPERM"), "{error}");
    // CONFIG alone can be denied, too; INFO then shows some settings.
    assert_eq!(admin.ask("ACL SETUSER jim on >pw ~* +@all -config"), "+OK");
    let yours = external(vec![tcp_as(port(&server), Some("jim"), "pw")]).unwrap();
    assert_eq!(yours.info().settings["maxclients"], "10000");
    assert!(!yours.info().settings.contains_key("tcp-backlog"));
}

#[test]
fn a_full_server_says_so() {
    // One connection is the control connection.
    let full = PrivateOptions {
        maxclients: Some(1),
        ..options()
    };
    let built_in = Server::start(
        ServerChoice::BuiltIn {
            options: full.clone(),
        },
        &Interrupt::never(),
    );
    // Over its own two addresses even the start needs two.
    assert!(built_in.unwrap_err().to_string().contains("maxclients"));
    drop(full);
    for mut server in each() {
        assert_eq!(Raw::tcp(&server).ask("CONFIG SET maxclients 1"), "+OK");
        let before = server.snapshot().unwrap();
        let error = external(vec![tcp(port(&server))]).unwrap_err();
        // The reply can be lost when the server closes with our request unread.
        let told = matches!(
            error,
            ServerError::Unusable {
                trouble: Trouble::MaxClients | Trouble::Closed,
                ..
            }
        );
        assert!(told, "{error}");
        let error = external(vec![unix(&socket(&server))]).unwrap_err().to_string();
        assert!(
            error.contains("maxclients") || error.contains("closed the connection"),
            "{error}"
        );
        let after = server.snapshot().unwrap();
        let view = after.since(&before).known().cloned().unwrap();
        assert_eq!((view.connections, view.rejected), (0, 2), "{view:?}");
    }
}

/// What systally says of a server that reads a request and answers with these bytes, then closes.
fn said_of(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut request = [0; 512];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(reply);
    });
    let said = external(vec![tcp(port)]).unwrap_err().to_string();
    thread.join().unwrap();
    said
}

#[test]
fn what_is_no_redis_is_told_from_what_it_answers() {
    for (reply, expected) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n<html>"[..],
            "looks like an HTTP server",
        ),
        (b"ERROR\r\n", "looks like memcached"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "looks like an SSH server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "looks like a TLS server"),
        (b"hello \x1b[31m\r\n", "its reply begins with 'hello "),
        (b"", "it closed the connection"),
        (b"+WRONG\r\n", "does not speak the Redis protocol"),
        (b"*1\r\n$4\r\nPING\r\n", "does not speak the Redis protocol"),
        (b"$-5\r\n", "does not speak the Redis protocol"),
        (
            b"-LOADING Redis is loading the dataset in memory\r\n",
            "still loading",
        ),
        (
            b"-DENIED Redis is running in protected mode\r\n",
            "protected mode",
        ),
        (b"-ERR max number of clients reached\r\n", "maxclients"),
    ] {
        let said = said_of(reply);
        assert!(
            said.contains(expected),
            "{}: {said}",
            String::from_utf8_lossy(reply)
        );
        assert!(!said.contains('\u{1b}') && said.contains("; "), "{said}");
    }
}

#[test]
fn hostile_replies_end_in_an_error() {
    // Deep nesting, and sizes that nobody could send.
    let nested: &'static [u8] = Box::leak(b"*1\r\n".repeat(100_000).into_boxed_slice());
    for reply in [
        nested,
        b"$9223372036854775807\r\nx",
        b"*2147483647\r\n",
        b"%4611686018427387904\r\n",
        b"|-1\r\n",
    ] {
        let said = said_of(reply);
        assert!(said.starts_with("cannot use the server at 127.0.0.1:"), "{said}");
    }
}

#[test]
fn addresses_where_nothing_is_are_explained() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("file"), "").unwrap();
    drop(UnixListener::bind(path("stale")).unwrap());
    let stream = std::os::unix::net::UnixDatagram::bind(path("datagram")).unwrap();
    for (endpoint, expected) in [
        (
            tcp(closed),
            "connection refused: nothing listens there; start the server",
        ),
        (unix(&path("missing")), "no such socket; start the server"),
        (unix(&path("file/x")), "no such socket"),
        (unix(&path("file")), "this is not a socket"),
        (unix(folder.path().to_str().unwrap()), "this is not a socket"),
        (unix(&path("stale")), "no server listens on it any more"),
        (unix(&path("datagram")), "this is not a socket"),
        (unix(&path(&"x".repeat(120))), "File name too long"),
        (
            Endpoint::Tcp {
                host: "a..b".into(),
                port: 1,
                user: None,
                password: None,
            },
            "cannot be resolved",
        ),
    ] {
        let error = external(vec![endpoint.clone()]).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(expected) && said.contains(&endpoint.to_string()[..6]),
            "{said}"
        );
    }
    drop(stream);
    assert!(matches!(external(Vec::new()), Err(ServerError::NoEndpoint)));
}

#[test]
fn a_socket_that_may_not_be_used_is_explained() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("closed");
    let _listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let said = Role::start("nobody", &[("SYSTALLY_TEST_PATH", path.to_str().unwrap())]).line("result ");
    assert!(
        said.contains("not permitted: connecting needs the right to write to the socket"),
        "{said}"
    );
}

#[test]
fn servers_that_never_answer_do_not_hang_us() {
    // One that accepts and stays silent, and one whose queue is full.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let full = UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _held = std::os::unix::net::UnixStream::connect(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let said = external(vec![tcp(port)]).unwrap_err().to_string();
            assert!(said.contains("no reply within 5 s"), "{said}");
        });
        scope.spawn(|| {
            let said = external(vec![unix(path.to_str().unwrap())])
                .unwrap_err()
                .to_string();
            assert!(said.contains("stayed full for 5 s"), "{said}");
        });
    });
}

/// A client of the `redis` crate over TCP.
fn client(server: &Server) -> redis::Connection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", port(server))).unwrap();
    client.get_connection().unwrap()
}

#[test]
fn counters_tell_what_clients_did_and_leave_us_out() {
    for mut server in each() {
        let before = server.snapshot().unwrap();
        let quiet = server.snapshot().unwrap();
        assert_eq!(quiet.since(&before).known().unwrap().connections, 0);
        assert!(quiet.since(&before).known().unwrap().commands.is_empty());
        let mut connection = client(&server);
        for i in 0..100 {
            let () = redis::cmd("SET")
                .arg(format!("k{i}"))
                .arg("v")
                .query(&mut connection)
                .unwrap();
        }
        let _: String = redis::cmd("GET").arg("k1").query(&mut connection).unwrap();
        let _: redis::RedisResult<i64> = redis::cmd("INCR").arg("k1").query(&mut connection);
        let _: redis::RedisResult<i64> = redis::cmd("GET").query(&mut connection);
        let mut raw = Raw::unix(&server);
        assert_eq!(raw.ask("INFO nothing"), "$0");
        assert_eq!(server.delete_keys(&["k1", "k2", "none"]).unwrap(), 2);
        let after = server.snapshot().unwrap();
        let view = after.since(&before).known().cloned().unwrap();
        assert_eq!(view.served(&["set", "get"]), 101, "{view:?}");
        assert_eq!(view.commands["info"], 1, "that of another client");
        assert_eq!(view.commands.get("del"), None, "ours");
        assert_eq!((view.failed["incr"], view.failed["get"]), (1, 1), "{view:?}");
        assert_eq!((view.connections, view.rejected), (2, 0));
        assert!(view.busy.is_some());
        let counters = after.counters().known().unwrap();
        assert_eq!(counters.connected_clients, Some(3));
        assert!(after.named()["redis.error.ERR"] >= 2);
    }
}

#[test]
fn a_reset_of_the_counters_is_noticed() {
    for mut server in each() {
        let before = server.snapshot().unwrap();
        let mut raw = Raw::tcp(&server);
        assert_eq!(raw.ask("CONFIG RESETSTAT"), "+OK");
        for _ in 0..500 {
            raw.ask("PING");
        }
        let view = server.snapshot().unwrap().since(&before);
        assert!(
            view.reason().is_some_and(|why| why.contains("went back")),
            "{view:?}"
        );
    }
}

#[test]
fn a_control_connection_that_was_closed_is_opened_again() {
    let Some(mut server) = private() else { return };
    let before = server.snapshot().unwrap();
    let mut raw = Raw::tcp(&server);
    // The control connection; Redis may not have noticed yet that one of the start is closed.
    let killed = raw.ask("CLIENT KILL TYPE normal SKIPME yes");
    assert!(matches!(killed.as_str(), ":1" | ":2"), "{killed}");
    let view = server
        .snapshot()
        .unwrap()
        .since(&before)
        .known()
        .cloned()
        .unwrap();
    assert_eq!(view.connections, 1, "{view:?}");
    assert_eq!(view.commands.keys().collect::<Vec<_>>(), ["client|kill"]);
}

#[test]
fn a_server_that_dies_is_reported_with_its_end() {
    for mut server in each() {
        let snapshot = server.snapshot().unwrap();
        assert_eq!(server.describe_alive(), Health::Running);
        kill(Pid::from_raw(server.pid().unwrap()), Signal::SIGKILL).unwrap();
        let error = server.snapshot().unwrap_err().to_string();
        assert!(
            error.contains("does not answer any more") && error.contains("SIGKILL"),
            "{error}"
        );
        assert!(matches!(
            server.describe_alive(),
            Health::Ended { status: Some(_), .. }
        ));
        drop(snapshot);
    }
    let server = built_in();
    let mut yours = external(vec![tcp(port(&server))]).unwrap();
    drop(server);
    assert!(matches!(yours.describe_alive(), Health::Silent(_)));
    let error = yours.snapshot().unwrap_err().to_string();
    assert!(
        error.contains("does not answer any more: connection refused"),
        "{error}"
    );
}

#[test]
fn a_restarted_server_has_no_difference() {
    let (mut a, mut b) = (built_in(), built_in());
    let view = b.snapshot().unwrap().since(&a.snapshot().unwrap());
    assert!(
        view.reason().is_some_and(|why| why.contains("restarted")),
        "{view:?}"
    );
}

#[test]
fn nothing_of_ours_shows_a_password_in_the_process_list() {
    let server = built_in();
    let output = Command::new("ps")
        .args(["-o", "args=", "-p", &server.pid().unwrap().to_string()])
        .output();
    let Ok(output) = output else {
        println!("SKIP: ps is not installed");
        return;
    };
    let args = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(args.contains("--socket"), "{args}");
}
