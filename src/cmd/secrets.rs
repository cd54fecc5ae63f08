//! Keeps a password given on the command line out of the process list.
//!
//! Everybody on a machine can read the arguments of a process. When they hold a password, systally
//! replaces itself by itself (execve(2)) with `***` in its place and the password in an environment
//! variable, which only the same user can read, and takes it from there before it starts anything.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, anyhow};

use crate::cli::ServerArgs;
use crate::sys::process::{forget_variable, ignore_children_again};
use crate::units::escape;

const MASK: &str = "***";
const PASS: &str = "SYSTALLY_HIDDEN_PASS";
const URI: &str = "SYSTALLY_HIDDEN_URI";

/// Variables that may hold a password; programs that systally starts do not get them.
const VARIABLES: [&str; 3] = [PASS, URI, "REDISCLI_AUTH"];

/// Moves a password from the arguments into the environment, or takes it back from there after that.
///
/// # Errors
/// When the replacement cannot be executed.
pub fn hide(args: &mut ServerArgs) -> anyhow::Result<()> {
    let given: Vec<OsString> = env::args_os().collect();
    if let (Ok(pass), Some(MASK)) = (env::var(PASS), args.pass.as_deref()) {
        args.pass = Some(pass);
    }
    if let (Ok(uri), Some(true)) = (env::var(URI), args.uri.as_deref().map(|u| u.contains(MASK))) {
        args.uri = Some(uri);
    }
    let pass = args
        .pass
        .clone()
        .filter(|pass| !pass.is_empty() && mentions(&given, pass));
    let uri_password = args
        .uri
        .as_deref()
        .and_then(password_of)
        .filter(|p| mentions(&given, p))
        .map(str::to_owned);
    if pass.is_none() && uri_password.is_none() {
        VARIABLES.into_iter().for_each(forget_variable);
        return Ok(());
    }
    let program = env::current_exe().context("cannot find the systally program to hide the password")?;
    let mut command = Command::new(program);
    let secrets: Vec<&str> = pass.iter().chain(&uri_password).map(String::as_str).collect();
    let mut values = given.iter();
    if let Some(name) = values.next() {
        command.arg0(name);
    }
    command.args(values.map(|arg| masked(arg, &secrets)));
    if let Some(pass) = &pass {
        command.env(PASS, pass);
    }
    if let (Some(uri), Some(_)) = (&args.uri, &uri_password) {
        command.env(URI, uri);
    }
    Err(restart(&mut command))
}

/// The same for the only URI that a command takes, in the option of this name. Other arguments are left
/// alone: they are the program's that is counted.
///
/// # Errors
/// As [`hide`].
pub fn hide_uri(option: &str, uri: &mut Option<String>) -> anyhow::Result<()> {
    let Some(given) = uri.clone() else {
        return Ok(());
    };
    if given.contains(MASK)
        && let Ok(whole) = env::var(URI)
    {
        forget_variable(URI);
        *uri = Some(whole);
        return Ok(());
    }
    let Some(password) = password_of(&given) else {
        return Ok(());
    };
    let program = env::current_exe().context("cannot find the systally program to hide the password")?;
    let mut command = Command::new(program);
    let mut args = env::args_os();
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    let with_option = format!("{option}={given}");
    let mut hidden = false;
    for arg in args {
        // The option stands before the program and its arguments.
        if !hidden && (arg == given.as_str() || arg == with_option.as_str()) {
            hidden = true;
            command.arg(masked(&arg, &[password]));
        } else {
            command.arg(arg);
        }
    }
    command.env(URI, &given);
    Err(restart(&mut command))
}

/// Replaces this process. Returns only when that failed.
fn restart(command: &mut Command) -> anyhow::Error {
    ignore_children_again();
    anyhow!(command.exec()).context("cannot restart to hide the password; set REDISCLI_AUTH instead")
}

/// The password inside `scheme://user:password@host` or `scheme://host?password=…`, as it is written there.
fn password_of(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let in_query = || {
        let (_, query) = rest.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| ["pass", "password"].contains(name))
    };
    let password = match (in_query(), rest.rsplit_once('@')) {
        (Some((_, password)), _) => password,
        (None, Some((credentials, _))) => credentials
            .split_once(':')
            .map_or(credentials, |(_, password)| password),
        (None, None) => return None,
    };
    (!password.is_empty() && password != MASK).then_some(password)
}

/// A text that holds a URI with this password, without it.
fn without(text: &str, password: &str) -> String {
    let in_query = format!("={password}");
    if text.contains(&in_query) && text.contains('?') {
        return text.replacen(&in_query, &format!("={MASK}"), 1);
    }
    text.replacen(&format!("{password}@"), &format!("{MASK}@"), 1)
}

/// Whether an argument is this secret or ends with it behind a flag, or carries it in a URI.
fn mentions(args: &[OsString], secret: &str) -> bool {
    args.iter().skip(1).any(|arg| masked(arg, &[secret]) != *arg)
}

fn masked(arg: &OsStr, secrets: &[&str]) -> OsString {
    let Some(text) = arg.to_str() else {
        return arg.to_owned();
    };
    for secret in secrets {
        let flag = text
            .strip_suffix(secret)
            .is_some_and(|flag| flag.starts_with('-') || flag.is_empty());
        if flag {
            return format!("{}{MASK}", &text[..text.len() - secret.len()]).into();
        }
        if password_of(text) == Some(secret) {
            return without(text, secret).into();
        }
    }
    arg.to_owned()
}

/// A command line as a record may keep it: escaped, with what looks like a password masked (the value
/// of a flag that names one, and the user part of a URI).
pub fn shown_command(argv: &[OsString]) -> String {
    let mut words = Vec::with_capacity(argv.len());
    let mut mask_next = false;
    for arg in argv {
        let text = arg.to_string_lossy();
        let (flag, value) = text
            .split_once('=')
            .map_or((&*text, None), |(flag, value)| (flag, Some(value)));
        let names_secret = matches!(
            flag,
            "-a" | "--pass" | "--password" | "--auth" | "--token" | "--requirepass"
        );
        let word = match (mask_next, names_secret, value) {
            (true, _, _) => MASK.to_owned(),
            (false, true, Some(_)) => format!("{flag}={MASK}"),
            _ => match password_of(&text) {
                Some(password) => without(&text, password),
                None => text.to_string(),
            },
        };
        mask_next = names_secret && value.is_none() && !mask_next;
        words.push(escape(&word, 200));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_command_is_kept_without_its_password() {
        let argv: Vec<OsString> = [
            "redis-cli",
            "-a",
            "hunter2",
            "--pass=x",
            "-u",
            "redis://u:hunter2@h",
            "get",
            "k",
        ]
        .map(Into::into)
        .to_vec();
        assert_eq!(
            shown_command(&argv),
            "redis-cli -a *** --pass=*** -u redis://u:***@h get k"
        );
    }

    fn show(arg: &str) -> String {
        masked(OsStr::new(arg), &["hunter2"])
            .into_string()
            .expect("text stays text")
    }

    #[test]
    fn every_way_to_write_it_is_masked() {
        assert_eq!(show("hunter2"), "***");
        assert_eq!(show("-ahunter2"), "-a***");
        assert_eq!(show("--pass=hunter2"), "--pass=***");
        assert_eq!(show("redis://me:hunter2@db:6379"), "redis://me:***@db:6379");
        assert_eq!(show("-uredis://:hunter2@db"), "-uredis://:***@db");
        assert_eq!(show("unix:///tmp/hunter2.sock"), "unix:///tmp/hunter2.sock");
        assert_eq!(
            show("--server=unix:///r.sock?user=me&password=hunter2"),
            "--server=unix:///r.sock?user=me&password=***"
        );
        assert_eq!(show("redis://h?pass=hunter2&db=0"), "redis://h?pass=***&db=0");
    }
}
