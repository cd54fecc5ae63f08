//! What is sent.

use crate::strategy::contract::Spec;
use crate::strategy::rust::failure::Fail;
use crate::strategy::rust::job::{Command, Job};
use crate::strategy::rust::resp;
use crate::strategy::rust::round::Batch;

/// Memory that a prepared batch may take.
const MAX_BATCH: usize = 1 << 30;

/// A batch as it goes over the wire.
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// For each command in `bytes`: where its digits begin (none in a `PING`), and where it ends.
    slots: Vec<Slot>,
    /// The digits of each key, in the order of use.
    digits: Vec<[u8; DIGITS]>,
    ops_per_key: u64,
}

const DIGITS: usize = 10;

struct Slot {
    digits: Option<usize>,
    end: usize,
}

impl Outbox {
    pub(super) fn new(job: &Job, spec: &Spec) -> Result<Outbox, Fail> {
        // SET and GET by turns: a batch can begin with either.
        let commands = u64::from(spec.batch) + job.ops_per_key() - 1;
        let mut bytes = Vec::new();
        let mut slots = Vec::new();
        for i in 0..commands {
            let command = job.command(i);
            let key = job.key(0).as_bytes();
            let before = bytes.len();
            match command {
                Command::Set => resp::encode(&mut bytes, &[b"SET", key, &job.payload]),
                Command::Get | Command::Incr => resp::encode(&mut bytes, &[command.name().as_bytes(), key]),
                Command::Ping => resp::encode(&mut bytes, &[b"PING"]),
            }
            // The key is the second argument: behind "*N\r\n", "$N\r\nNAME\r\n" and its own "$NN\r\n".
            let behind = |start: usize| {
                let lines = bytes[start..].windows(2).position(|pair| pair == b"\r\n");
                start + lines.map_or(0, |at| at + 2)
            };
            let key_start = behind(behind(behind(behind(before))));
            slots.push(Slot {
                digits: (command != Command::Ping).then(|| key_start + key.len() - DIGITS),
                end: bytes.len(),
            });
            if bytes.len() > MAX_BATCH {
                return Err(Fail::spec(format!(
                    "a batch of {} operations of {} bytes takes more than {} MiB",
                    spec.batch,
                    job.payload.len(),
                    MAX_BATCH >> 20
                )));
            }
        }
        let digits = job
            .keys
            .iter()
            .map(|key| {
                let mut digits = [b'0'; DIGITS];
                digits.copy_from_slice(&key.as_bytes()[key.len() - DIGITS..]);
                digits
            })
            .collect();
        Ok(Outbox {
            bytes,
            slots,
            digits,
            ops_per_key: job.ops_per_key(),
        })
    }

    /// The bytes of a batch.
    pub(super) fn prepare(&mut self, batch: Batch) -> &[u8] {
        let keys = self.digits.len();
        let first_slot = (batch.first % self.ops_per_key) as usize;
        let mut key = (batch.first / self.ops_per_key % keys as u64) as usize;
        for slot in first_slot..first_slot + batch.count {
            if let Some(at) = self.slots[slot].digits {
                self.bytes[at..at + DIGITS].copy_from_slice(&self.digits[key]);
            }
            if (slot as u64 + 1).is_multiple_of(self.ops_per_key) {
                key = (key + 1) % keys;
            }
        }
        let start = first_slot
            .checked_sub(1)
            .map_or(0, |before| self.slots[before].end);
        &self.bytes[start..self.slots[first_slot + batch.count - 1].end]
    }
}
