//! The keys: sixteen databases of strings, each with an optional time to expire.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Databases, as Redis has by default.
pub(super) const DATABASES: usize = 16;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A value and when it expires, in milliseconds since 1970.
#[derive(Debug)]
struct Value {
    bytes: Vec<u8>,
    expires: Option<i64>,
}

impl Value {
    fn is_over(&self, now: impl FnOnce() -> i64) -> bool {
        // The clock is read only for keys that expire.
        self.expires.is_some_and(|at| at <= now())
    }
}

/// What becomes of a key's time to expire when its value is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It does not expire.
    Never,
    /// As before.
    Keep,
    /// At this time, in milliseconds since 1970.
    At(i64),
}

/// A key's time to expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ttl {
    /// There is no such key.
    NoKey,
    /// It does not expire.
    Forever,
    /// So many milliseconds.
    Ms(i64),
}

/// All databases.
#[derive(Debug)]
pub(super) struct Store {
    databases: Vec<HashMap<Box<[u8]>, Value>>,
    /// Keys that were removed because their time was over.
    pub(super) expired: u64,
}

impl Store {
    pub(super) fn new() -> Store {
        Store {
            databases: (0..DATABASES).map(|_| HashMap::new()).collect(),
            expired: 0,
        }
    }

    /// The database; a session's number is checked when it is selected.
    fn live(&mut self, db: usize, key: &[u8]) -> Option<&mut Value> {
        let keys = self.databases.get_mut(db)?;
        if keys.get(key)?.is_over(now_ms) {
            keys.remove(key);
            self.expired += 1;
            return None;
        }
        keys.get_mut(key)
    }

    /// A key's value.
    pub(super) fn get(&mut self, db: usize, key: &[u8]) -> Option<&[u8]> {
        self.live(db, key).map(|value| value.bytes.as_slice())
    }

    /// Sets a key's value.
    pub(super) fn set(&mut self, db: usize, key: &[u8], bytes: &[u8], expiry: Expiry) {
        let expires = |old: Option<i64>| match expiry {
            Expiry::Never => None,
            Expiry::Keep => old,
            Expiry::At(at) => Some(at),
        };
        if let Some(value) = self.live(db, key) {
            value.bytes.clear();
            // A value that shrank gives its memory back.
            value.bytes.shrink_to(bytes.len().saturating_mul(2));
            value.bytes.extend_from_slice(bytes);
            value.expires = expires(value.expires);
        } else if let Some(keys) = self.databases.get_mut(db) {
            keys.insert(
                key.into(),
                Value {
                    bytes: bytes.to_vec(),
                    expires: expires(None),
                },
            );
        }
    }

    /// Removes a key; whether there was one.
    pub(super) fn remove(&mut self, db: usize, key: &[u8]) -> bool {
        self.live(db, key).is_some()
            && self
                .databases
                .get_mut(db)
                .is_some_and(|keys| keys.remove(key).is_some())
    }

    /// Sets when a key expires, or removes it at once when that time is over; whether there was one.
    pub(super) fn expire(&mut self, db: usize, key: &[u8], at: i64) -> bool {
        let Some(value) = self.live(db, key) else {
            return false;
        };
        value.expires = Some(at);
        if at <= now_ms() {
            self.remove(db, key);
        }
        true
    }

    /// When a key expires.
    pub(super) fn expires_at(&mut self, db: usize, key: &[u8]) -> Option<i64> {
        self.live(db, key)?.expires
    }

    /// How long a key has.
    pub(super) fn ttl(&mut self, db: usize, key: &[u8]) -> Ttl {
        match self.live(db, key) {
            None => Ttl::NoKey,
            Some(Value { expires: None, .. }) => Ttl::Forever,
            Some(Value {
                expires: Some(at), ..
            }) => Ttl::Ms(at.saturating_sub(now_ms()).max(0)),
        }
    }

    /// Adds to a key's whole number, a missing key counting as 0; `None` when it holds none or would
    /// overflow, told apart by the outer `Result`.
    pub(super) fn add(&mut self, db: usize, key: &[u8], by: i64) -> Result<i64, AddError> {
        let old = match self.get(db, key) {
            None => 0,
            Some(bytes) => super::request::integer(bytes).ok_or(AddError::NotAnInteger)?,
        };
        let new = old.checked_add(by).ok_or(AddError::Overflow)?;
        self.set(db, key, new.to_string().as_bytes(), Expiry::Keep);
        Ok(new)
    }

    /// Keys in a database, those included whose time is over and that nobody has asked for since.
    pub(super) fn len(&self, db: usize) -> usize {
        self.databases.get(db).map_or(0, HashMap::len)
    }

    /// Keys in a database that expire, for `INFO`.
    pub(super) fn expiring(&self, db: usize) -> usize {
        self.databases
            .get(db)
            .map_or(0, |keys| keys.values().filter(|v| v.expires.is_some()).count())
    }

    /// Empties one database.
    pub(super) fn clear(&mut self, db: usize) {
        if let Some(keys) = self.databases.get_mut(db) {
            *keys = HashMap::new();
        }
    }

    /// Empties all.
    pub(super) fn clear_all(&mut self) {
        (0..self.databases.len()).for_each(|db| self.clear(db));
    }
}

/// Why a number could not be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddError {
    /// The value is no whole number.
    NotAnInteger,
    /// The sum does not fit.
    Overflow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_whose_time_is_over_is_gone() {
        let mut store = Store::new();
        store.set(0, b"k", b"1", Expiry::At(now_ms() - 1));
        store.set(0, b"later", b"1", Expiry::At(now_ms() + 60_000));
        assert_eq!(store.len(0), 2);
        assert_eq!(store.get(0, b"k"), None);
        assert_eq!((store.len(0), store.expired), (1, 1));
        assert!(matches!(store.ttl(0, b"later"), Ttl::Ms(59_000..=60_000)));
        assert!(store.expire(0, b"later", now_ms()));
        assert_eq!(store.ttl(0, b"later"), Ttl::NoKey);
        assert!(!store.expire(0, b"later", now_ms()));
    }

    #[test]
    fn a_new_value_keeps_or_loses_its_time() {
        let mut store = Store::new();
        let at = now_ms() + 60_000;
        store.set(0, b"k", b"1", Expiry::At(at));
        assert_eq!(store.add(0, b"k", 4), Ok(5));
        store.set(0, b"k", b"7", Expiry::Keep);
        assert_eq!(store.expires_at(0, b"k"), Some(at));
        store.set(0, b"k", b"x", Expiry::Never);
        assert_eq!(store.ttl(0, b"k"), Ttl::Forever);
        assert_eq!(store.add(0, b"k", 1), Err(AddError::NotAnInteger));
        store.set(0, b"k", i64::MAX.to_string().as_bytes(), Expiry::Never);
        assert_eq!(store.add(0, b"k", 1), Err(AddError::Overflow));
    }

    #[test]
    fn databases_are_apart() {
        let mut store = Store::new();
        store.set(1, b"k", b"v", Expiry::Never);
        assert_eq!(store.get(0, b"k"), None);
        assert!(store.remove(1, b"k"));
        assert!(!store.remove(1, b"k"));
        store.set(DATABASES, b"k", b"v", Expiry::Never);
        assert_eq!(store.get(DATABASES, b"k"), None);
    }
}
