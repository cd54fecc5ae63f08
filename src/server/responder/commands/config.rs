//! Commands about the server: settings, statistics, and the commands themselves.

use super::super::store::now_ms;
use super::{Call, Failure, Outcome, SYNTAX, Spec, TABLE, is, shown, table};

pub(super) fn info(call: &mut Call<'_, '_>) -> Outcome {
    let text = call.state.info(call.args.from(1));
    call.out.verbatim(&text);
    Ok(())
}

pub(super) fn time(call: &mut Call<'_, '_>) -> Outcome {
    let ms = now_ms();
    call.out.array(2);
    call.out.bulk((ms / 1000).to_string().as_bytes());
    call.out.bulk((ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

pub(super) fn get(call: &mut Call<'_, '_>) -> Outcome {
    let mut found = call.state.config.settings();
    found.retain(|(name, _)| call.args.from(2).any(|pattern| matches(pattern, name.as_bytes())));
    call.out.map(found.len());
    for (name, value) in found {
        call.out.bulk(name.as_bytes());
        call.out.bulk(value.as_bytes());
    }
    Ok(())
}

/// Whether a glob pattern of `*` and `?` matches, whatever the case. What else Redis knows (`[…]`, `\`)
/// stands for itself here, since no setting's name has it.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on when a later part does not match: behind the last star, one more byte under it.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n + 1));
                p += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, next)) => {
                    (p, n) = (star, next);
                    retry = Some((star, next + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

pub(super) fn set(call: &mut Call<'_, '_>) -> Outcome {
    if !call.args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let mut changed = call.state.config.clone();
    let mut words = call.args.from(2);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        change(&mut changed, name, value)?;
    }
    call.state.config = changed;
    call.out.simple("OK");
    Ok(())
}

/// Changes one setting. What cannot be changed here may still be set to what it is, so that scripts that
/// turn persistence off for a benchmark work.
fn change(config: &mut super::super::state::Config, name: &[u8], value: &[u8]) -> Outcome {
    let settings = config.settings();
    let Some((known, now)) = settings.iter().find(|(known, _)| is(name, known)) else {
        let mut text = b"ERR Unknown option or number of arguments for CONFIG SET - '".to_vec();
        text.extend_from_slice(shown(name, 128));
        text.push(b'\'');
        return Err(Failure(text));
    };
    let failed = |why: &str| {
        Failure::from(format!(
            "ERR CONFIG SET failed (possibly related to argument '{known}') - {why}"
        ))
    };
    if *known == "requirepass" {
        config.requirepass = value.to_vec();
    } else if *known == "maxclients" {
        let wanted = super::super::request::integer(value)
            .ok_or_else(|| failed("argument couldn't be parsed into an integer"))?;
        config.maxclients = u32::try_from(wanted)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| failed("argument must be between 1 and 4294967295 inclusive"))?
            .into();
    } else if !value.eq_ignore_ascii_case(now.as_bytes()) {
        return Err(failed("can't set immutable config"));
    }
    Ok(())
}

pub(super) fn reset_stat(call: &mut Call<'_, '_>) -> Outcome {
    call.state.reset_stats();
    call.out.simple("OK");
    Ok(())
}

/// The subcommands of the command that was asked.
pub(super) fn help(call: &mut Call<'_, '_>) -> Outcome {
    let container = call.args.get(0).to_ascii_lowercase();
    let of_it = |spec: &&Spec| {
        spec.name
            .as_bytes()
            .strip_prefix(container.as_slice())
            .is_some_and(|rest| rest.starts_with(b"|"))
    };
    let specs: Vec<&Spec> = TABLE.iter().filter(of_it).collect();
    call.out.array(specs.len());
    for spec in specs {
        call.out.simple(&format!(
            "{}: {}",
            spec.name.replace('|', " ").to_uppercase(),
            spec.summary
        ));
    }
    Ok(())
}

/// The commands that are not subcommands.
fn commands() -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().filter(|spec| !spec.name.contains('|'))
}

pub(super) fn command(call: &mut Call<'_, '_>) -> Outcome {
    call.out.array(commands().count());
    commands().for_each(|spec| describe(call, spec));
    Ok(())
}

pub(super) fn command_count(call: &mut Call<'_, '_>) -> Outcome {
    call.out
        .integer(i64::try_from(commands().count()).unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn command_list(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len() > 2 {
        return Err(SYNTAX.into());
    }
    call.out.array(commands().count());
    commands().for_each(|spec| call.out.bulk(spec.name.as_bytes()));
    Ok(())
}

pub(super) fn command_info(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len() == 2 {
        return command(call);
    }
    call.out.array(call.args.len() - 2);
    for name in call.args.from(2) {
        if call.overflows() {
            break;
        }
        match table::position(name, None) {
            Some(at) => describe(call, &TABLE[at]),
            // An array that is not there, and has no spelling of its own in RESP3.
            None => call.out.null_array(),
        }
    }
    Ok(())
}

pub(super) fn command_docs(call: &mut Call<'_, '_>) -> Outcome {
    let specs: Vec<&Spec> = if call.args.len() == 2 {
        commands().collect()
    } else {
        call.args
            .from(2)
            .filter_map(|name| table::position(name, None))
            .map(|at| &TABLE[at])
            .collect()
    };
    call.out.map(specs.len());
    for spec in specs {
        if call.overflows() {
            break;
        }
        call.out.bulk(spec.name.as_bytes());
        call.out.map(3);
        for (field, value) in [
            ("summary", spec.summary),
            ("since", "1.0.0"),
            ("group", spec.group),
        ] {
            call.out.bulk(field.as_bytes());
            call.out.bulk(value.as_bytes());
        }
    }
    Ok(())
}

/// One command as `COMMAND` shows it: name, arity, flags, keys, and four lists that are empty here (ACL
/// categories, tips, key specifications, subcommands).
fn describe(call: &mut Call<'_, '_>, spec: &Spec) {
    call.out.array(10);
    call.out.bulk(spec.name.as_bytes());
    call.out.integer(spec.arity);
    call.out.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| call.out.simple(flag));
    let (first, last, step) = spec.keys;
    [first, last, step].into_iter().for_each(|n| call.out.integer(n));
    call.out.set(0);
    call.out.set(0);
    call.out.set(0);
    call.out.array(0);
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("save", "SAVE", true),
            ("max*", "maxclients", true),
            ("*max*mem*", "maxmemory-policy", true),
            ("m?xclients", "maxclients", true),
            ("max", "maxclients", false),
            ("*x", "maxclients", false),
            ("", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                wanted,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn many_stars_end() {
        assert!(!matches(
            "*a".repeat(5000).as_bytes(),
            "a".repeat(2000).as_bytes()
        ));
    }
}
