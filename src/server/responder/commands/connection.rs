//! Commands about the connection itself.

use super::super::reply::Protocol;
use super::super::session::Talk;
use super::super::state::{REDIS_VERSION, SERVER_NAME};
use super::super::store::DATABASES;
use super::{Call, Failure, Outcome, SYNTAX, integer, is, shown};

/// The only user there is.
const DEFAULT_USER: &str = "default";

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(super) fn ping(call: &mut Call<'_, '_>) -> Outcome {
    match call.args.len() {
        1 => call.out.simple("PONG"),
        2 => call.out.bulk(call.args.get(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call<'_, '_>) -> Outcome {
    call.out.bulk(call.args.get(1));
    Ok(())
}

pub(super) fn select(call: &mut Call<'_, '_>) -> Outcome {
    let index = integer(call.args.get(1))?;
    call.session.db = usize::try_from(index)
        .ok()
        .filter(|index| *index < DATABASES)
        .ok_or_else(|| Failure::from("ERR DB index is out of range"))?;
    call.out.simple("OK");
    Ok(())
}

pub(super) fn auth(call: &mut Call<'_, '_>) -> Outcome {
    let (user, password) = match call.args.len() {
        2 if !call.state.config.guarded() => {
            return Err(
                "ERR AUTH <password> called without any password configured for the default user. \
                        Are you sure your configuration is correct?"
                    .into(),
            );
        }
        2 => (DEFAULT_USER.as_bytes(), call.args.get(1)),
        3 => (call.args.get(1), call.args.get(2)),
        _ => return Err(SYNTAX.into()),
    };
    authenticate(call, user, password)?;
    call.out.simple("OK");
    Ok(())
}

fn authenticate(call: &mut Call<'_, '_>, user: &[u8], password: &[u8]) -> Outcome {
    let config = &call.state.config;
    if user == DEFAULT_USER.as_bytes() && (!config.guarded() || config.is_password(password)) {
        call.session.authenticated = true;
        Ok(())
    } else {
        Err(WRONG_PASS.into())
    }
}

pub(super) fn hello(call: &mut Call<'_, '_>) -> Outcome {
    let mut words = call.args.from(1);
    let protocol = match words.next() {
        None => call.session.protocol,
        Some(word) => match super::super::request::integer(word) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        },
    };
    let (mut credentials, mut name) = (None, None);
    while let Some(word) = words.next() {
        let unfinished = || {
            let mut text = b"ERR Syntax error in HELLO option '".to_vec();
            text.extend_from_slice(shown(word, 128));
            text.push(b'\'');
            Failure(text)
        };
        if is(word, "AUTH") {
            let user = words.next().ok_or_else(unfinished)?;
            credentials = Some((user, words.next().ok_or_else(unfinished)?));
        } else if is(word, "SETNAME") {
            let wanted = words.next().ok_or_else(unfinished)?;
            check_label(wanted, "Client names")?;
            name = Some(wanted);
        } else {
            return Err(unfinished());
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.session.authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    if let Some(name) = name {
        call.session.name = name.to_vec();
    }
    call.session.protocol = protocol;
    call.out.protocol = protocol;
    call.out.map(7);
    for (field, value) in [("server", SERVER_NAME), ("version", REDIS_VERSION)] {
        call.out.bulk(field.as_bytes());
        call.out.bulk(value.as_bytes());
    }
    let id = i64::try_from(call.session.id).unwrap_or(i64::MAX);
    for (field, value) in [("proto", protocol.number()), ("id", id)] {
        call.out.bulk(field.as_bytes());
        call.out.integer(value);
    }
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        call.out.bulk(field.as_bytes());
        call.out.bulk(value.as_bytes());
    }
    call.out.bulk(b"modules");
    call.out.array(0);
    Ok(())
}

/// Names and library facts stand between blanks in `CLIENT LIST`.
fn check_label(label: &[u8], what: &str) -> Outcome {
    if label.iter().all(u8::is_ascii_graphic) {
        Ok(())
    } else {
        Err(format!("ERR {what} cannot contain spaces, newlines or special characters.").into())
    }
}

pub(super) fn quit(call: &mut Call<'_, '_>) -> Outcome {
    call.session.closing = true;
    call.out.simple("OK");
    Ok(())
}

pub(super) fn reset(call: &mut Call<'_, '_>) -> Outcome {
    let open = !call.state.config.guarded();
    call.session.reset(open);
    call.out.protocol = call.session.protocol;
    call.out.simple("RESET");
    Ok(())
}

pub(super) fn client_id(call: &mut Call<'_, '_>) -> Outcome {
    call.out
        .integer(i64::try_from(call.session.id).unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn client_getname(call: &mut Call<'_, '_>) -> Outcome {
    if call.session.name.is_empty() {
        call.out.null()
    } else {
        call.out.bulk(&call.session.name)
    }
    Ok(())
}

pub(super) fn client_setname(call: &mut Call<'_, '_>) -> Outcome {
    check_label(call.args.get(2), "Client names")?;
    call.session.name = call.args.get(2).to_vec();
    call.out.simple("OK");
    Ok(())
}

pub(super) fn client_setinfo(call: &mut Call<'_, '_>) -> Outcome {
    let (option, value) = (call.args.get(2), call.args.get(3));
    if is(option, "LIB-NAME") {
        check_label(value, "lib-name")?;
        call.session.lib_name = value.to_vec();
    } else if is(option, "LIB-VER") {
        check_label(value, "lib-ver")?;
        call.session.lib_ver = value.to_vec();
    } else {
        let mut text = b"ERR Unrecognized option '".to_vec();
        text.extend_from_slice(shown(option, 128));
        text.push(b'\'');
        return Err(Failure(text));
    }
    call.out.simple("OK");
    Ok(())
}

pub(super) fn client_info(call: &mut Call<'_, '_>) -> Outcome {
    let line = call.session.line() + "\n";
    call.out.verbatim(&line);
    Ok(())
}

pub(super) fn client_list(call: &mut Call<'_, '_>) -> Outcome {
    let mut ids = None;
    let mut only_normal = true;
    match call.args.len() {
        2 => {}
        4 if is(call.args.get(2), "TYPE") => {
            only_normal = is(call.args.get(3), "normal");
            let known = ["normal", "master", "replica", "slave", "pubsub"];
            if !known.iter().any(|kind| is(call.args.get(3), kind)) {
                let mut text = b"ERR Unknown client type '".to_vec();
                text.extend_from_slice(shown(call.args.get(3), 128));
                text.push(b'\'');
                return Err(Failure(text));
            }
        }
        n if n > 3 && is(call.args.get(2), "ID") => {
            let wanted: Result<Vec<i64>, _> = call.args.from(3).map(integer).collect();
            ids = Some(wanted.map_err(|_| Failure::from("ERR Invalid client ID"))?);
        }
        _ => return Err(SYNTAX.into()),
    }
    let me: &super::Session = call.session;
    let mut sessions: Vec<&super::Session> = call.others.iter().flatten().chain([me]).collect();
    sessions.sort_by_key(|session| session.id);
    let wanted = |id: u64| {
        ids.as_ref()
            .is_none_or(|ids| ids.iter().any(|i| u64::try_from(*i) == Ok(id)))
    };
    let lines: Vec<String> = sessions
        .iter()
        .filter(|s| only_normal && wanted(s.id))
        .map(|s| s.line() + "\n")
        .collect();
    call.out.verbatim(&lines.concat());
    Ok(())
}

pub(super) fn client_reply(call: &mut Call<'_, '_>) -> Outcome {
    let word = call.args.get(2);
    if is(word, "ON") {
        call.session.talk = Talk::On;
        call.out.simple("OK");
    } else if is(word, "OFF") {
        call.session.talk = Talk::Off;
    } else if is(word, "SKIP") {
        if call.session.talk == Talk::On {
            call.session.talk = Talk::SkipNext;
        }
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

pub(super) fn client_on_off(call: &mut Call<'_, '_>) -> Outcome {
    if !is(call.args.get(2), "ON") && !is(call.args.get(2), "OFF") {
        return Err(SYNTAX.into());
    }
    call.out.simple("OK");
    Ok(())
}
