//! A password never shows: in no output, no record, no table, no process list, whichever way it was given.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod strategy_support;

use bench_support::{Run, Running, have_php, row_is};
use strategy_support::Redis;
use systally::record::Status;

const PASSWORD: &str = "hunter2+s3cret";

/// The command lines of a run's processes, and the environments of its workers.
fn shown(running: &Running) -> Vec<String> {
    let family = running.family();
    let read = |pid: i32, name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let own = read(running.pid(), "cmdline");
    let mut texts = vec![own.clone()];
    for (pid, _) in family {
        let environ = read(pid, "environ");
        let command = read(pid, "cmdline");
        // systally's own environment, which only its user can read, has to hold it; so has that of a child
        // which has not become another program yet.
        if command != own {
            texts.push(format!("{command}\n{environ}"));
        }
        texts.push(command);
    }
    texts
}

fn check(given: &str, run: Run, more: &[&str]) {
    let mut names = vec![
        "raw/persistent/tcp",
        "redis-rs/connect/tcp",
        "redis-rs-async/persistent/tcp",
    ];
    if have_php() {
        names.extend(["phpredis/connect/tcp", "predis/persistent/tcp"]);
    }
    let files = ["r.json", "t.md", "t.csv", "t.json"].map(|name| run.path(name));
    let run = run
        .args(&names)
        .args(more)
        .args(["--runs", "2", "--warmup", "0", "--duration", "300ms"]);
    let run = run
        .arg("-o")
        .arg(&files[0])
        .arg("--export-markdown")
        .arg(&files[1]);
    let run = run
        .arg("--export-csv")
        .arg(&files[2])
        .arg("--export-json")
        .arg(&files[3]);
    let mut running = run.start();
    // The first moment belongs to the shell that was given the password; then systally covers it.
    running.until("the password is covered", |run| {
        run.family()
            .iter()
            .any(|(_, command)| command.contains(" worker "))
    });
    let mut looks = 0;
    while running.child.try_wait().unwrap().is_none() {
        for text in shown(&running) {
            assert!(
                !text.contains(PASSWORD) && !text.contains("hunter2"),
                "{given}: {text}"
            );
        }
        looks += 1;
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
    assert!(looks > 0, "the run was over before anybody looked");
    let ended = running.end();
    ended.code(0);
    assert!(!ended.all().contains("hunter2"), "{given}: {}", ended.all());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(!text.contains("hunter2"), "{given}: {}", file.display());
    }
    let record = ended.saved(&files[0]);
    for name in names {
        row_is(&record, name, Status::Ok);
    }
}

#[test]
fn a_password_given_in_any_way_shows_nowhere() {
    let Some(redis) = Redis::start(Some(PASSWORD)) else {
        return;
    };
    let port = redis.port().to_string();
    let at = ["-h", "127.0.0.1", "-p", &port];
    check("-a", Run::bench(at), &["-a", PASSWORD]);
    check("-aPASS", Run::bench(at), &[&format!("-a{PASSWORD}")]);
    check(
        "--pass",
        Run::bench(at),
        &[&format!("--pass={PASSWORD}"), "--user", "default"],
    );
    check(
        "REDISCLI_AUTH",
        Run::bench(at).env("REDISCLI_AUTH", PASSWORD),
        &[],
    );
    let encoded = PASSWORD.replace('+', "%2B");
    for user in ["", "default"] {
        let uri = format!("redis://{user}:{encoded}@127.0.0.1:{port}");
        check("-u", Run::bench([""; 0]), &["-u", &uri]);
        check("--uri", Run::bench([""; 0]), &[&format!("--uri={uri}")]);
    }
}

#[test]
fn a_password_that_is_refused_shows_nowhere_either() {
    let Some(redis) = Redis::start(Some("another")) else {
        return;
    };
    let port = redis.port().to_string();
    for args in [
        vec!["-p".to_owned(), port.clone(), "-a".into(), PASSWORD.into()],
        vec!["-u".into(), format!("redis://:{PASSWORD}@127.0.0.1:{port}")],
        vec!["-u".into(), format!("redis://:{PASSWORD}@127.0.0.1:1")],
        vec!["-u".into(), format!("redis://:{PASSWORD}@no-such-host.invalid:1")],
        vec![
            "-u".into(),
            format!("redis://:{PASSWORD}@127.0.0.1:{port}/notadb"),
        ],
        vec!["-u".into(), format!("unix://:{PASSWORD}@/no/such/socket")],
    ] {
        let ended = Run::bench(&args).arg("raw").end();
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{}", ended.all());
        assert!(!ended.all().contains("hunter2"), "{args:?}: {}", ended.all());
    }
}
