//! Commands that read and set values.

use super::super::store::{Expiry, now_ms};
use super::{Call, Failure, Outcome, SYNTAX, integer, is};

pub(super) fn get(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args.get(1);
    reply_with_value(call, key);
    Ok(())
}

fn reply_with_value(call: &mut Call<'_, '_>, key: &[u8]) {
    match call.state.store.get(call.session.db, key) {
        Some(value) => {
            call.state.stats.hits += 1;
            call.out.bulk(value);
        }
        None => {
            call.state.stats.misses += 1;
            call.out.null();
        }
    }
}

pub(super) fn mget(call: &mut Call<'_, '_>) -> Outcome {
    call.out.array(call.args.len() - 1);
    for key in call.args.from(1) {
        if call.overflows() {
            break;
        }
        reply_with_value(call, key);
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    let mut words = call.args.from(1);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        call.state.store.set(call.session.db, key, value, Expiry::Never);
    }
    call.out.simple("OK");
    Ok(())
}

/// What `SET` may be told.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    get: bool,
    keep_ttl: bool,
    /// Time to expire: the number, its unit in milliseconds, and whether it counts from now.
    expiry: Option<(i64, i64, bool)>,
}

impl SetOptions {
    fn parse(call: &Call<'_, '_>) -> Result<SetOptions, Failure> {
        /// Milliseconds.
        const SECOND: i64 = 1000;
        let mut options = SetOptions::default();
        let mut expiry = None;
        let mut words = call.args.from(3);
        while let Some(word) = words.next() {
            let unit = [
                ("EX", SECOND, true),
                ("PX", 1, true),
                ("EXAT", SECOND, false),
                ("PXAT", 1, false),
            ]
            .into_iter()
            .find(|(name, ..)| is(word, name));
            match unit {
                Some((_, unit, from_now)) if expiry.is_none() && !options.keep_ttl => {
                    expiry = Some((words.next().ok_or(SYNTAX)?, unit, from_now));
                }
                None if is(word, "NX") && !options.only_old => options.only_new = true,
                None if is(word, "XX") && !options.only_new => options.only_old = true,
                None if is(word, "GET") => options.get = true,
                None if is(word, "KEEPTTL") && expiry.is_none() => options.keep_ttl = true,
                _ => return Err(SYNTAX.into()),
            }
        }
        if let Some((number, unit, from_now)) = expiry {
            options.expiry = Some((integer(number)?, unit, from_now));
        }
        Ok(options)
    }
}

/// A time to expire as milliseconds since 1970.
fn expiry_at(command: &str, (number, unit, from_now): (i64, i64, bool)) -> Result<i64, Failure> {
    let base = if from_now { now_ms() } else { 0 };
    number
        .checked_mul(unit)
        .filter(|ms| *ms > 0)
        .and_then(|ms| ms.checked_add(base))
        .ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

pub(super) fn set(call: &mut Call<'_, '_>) -> Outcome {
    let options = SetOptions::parse(call)?;
    let expiry = match options.expiry {
        Some(expiry) => Expiry::At(expiry_at("set", expiry)?),
        None if options.keep_ttl => Expiry::Keep,
        None => Expiry::Never,
    };
    let (key, db) = (call.args.get(1), call.session.db);
    let conditional = options.only_new || options.only_old;
    let exists = conditional && call.state.store.get(db, key).is_some();
    let sets = !(options.only_new && exists || options.only_old && !exists);
    if options.get {
        reply_with_value(call, key);
    }
    if sets {
        call.state.store.set(db, key, call.args.get(2), expiry);
    }
    if !options.get {
        if sets {
            call.out.simple("OK")
        } else {
            call.out.null()
        }
    }
    Ok(())
}

pub(super) fn setnx(call: &mut Call<'_, '_>) -> Outcome {
    let (key, db) = (call.args.get(1), call.session.db);
    let new = call.state.store.get(db, key).is_none();
    if new {
        call.state.store.set(db, key, call.args.get(2), Expiry::Never);
    }
    call.out.integer(i64::from(new));
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_expiry(call, "setex", 1000)
}

pub(super) fn psetex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_expiry(call, "psetex", 1)
}

fn set_with_expiry(call: &mut Call<'_, '_>, command: &str, unit: i64) -> Outcome {
    let at = expiry_at(command, (integer(call.args.get(2))?, unit, true))?;
    call.state.store.set(
        call.session.db,
        call.args.get(1),
        call.args.get(3),
        Expiry::At(at),
    );
    call.out.simple("OK");
    Ok(())
}
