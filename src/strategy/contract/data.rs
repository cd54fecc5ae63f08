//! The data of a load: which keys, in which order, and what stands under them.

use serde::{Deserialize, Serialize};

/// The key space: `prefix` and ten digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// What every key begins with.
    pub prefix: String,
    /// How many keys there are.
    pub count: u64,
    /// The order in which they are used.
    pub order: KeyOrder,
    /// Start of the random sequence; a worker adds its number.
    pub seed: u64,
}

impl Keys {
    /// The key with this index: the prefix and ten digits, so that every key has the same length.
    pub fn key(&self, index: u64) -> String {
        format!("{}{index:010}", self.prefix)
    }

    /// The indexes of one pass over the key space as worker number `worker` uses them: in order, or by
    /// the 31-bit generator `x = x * 1103515245 + 12345`, index `(x >> 8) mod count`, which gives the
    /// same sequence in every language.
    pub fn sequence(&self, worker: u32) -> Vec<u64> {
        let mut x = self.seed.wrapping_add(u64::from(worker)) & 0x7fff_ffff;
        (0..self.count)
            .map(|i| match self.order {
                KeyOrder::Seq => i,
                KeyOrder::Random => {
                    x = (x.wrapping_mul(1_103_515_245).wrapping_add(12_345)) & 0x7fff_ffff;
                    (x >> 8) % self.count
                }
            })
            .collect()
    }
}

/// How keys follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrder {
    /// 0, 1, 2 … and around.
    Seq,
    /// The generator of [`Keys::sequence`].
    Random,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    /// Its shape.
    pub kind: PayloadKind,
    /// Length of the string, or of the body field of an array or object.
    pub bytes: u64,
    /// How the client turns it into bytes.
    pub serializer: Serializer,
}

/// The shape of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PayloadKind {
    /// A string of `x`.
    String,
    /// A map of four fields.
    Array,
    /// An object of a named class with the same fields.
    Object,
}

impl PayloadKind {
    /// The name in specs, flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            PayloadKind::String => "string",
            PayloadKind::Array => "array",
            PayloadKind::Object => "object",
        }
    }
}

/// How a client serialises arrays and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Serializer {
    /// Strings as they are.
    None,
    /// PHP's own.
    Php,
    /// igbinary.
    Igbinary,
    /// JSON.
    Json,
}

impl Serializer {
    /// The name in specs, flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            Serializer::None => "none",
            Serializer::Php => "php",
            Serializer::Igbinary => "igbinary",
            Serializer::Json => "json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_in_every_language() {
        let keys = Keys {
            prefix: "st:".into(),
            count: 1000,
            order: KeyOrder::Random,
            seed: 1,
        };
        // 1 * 1103515245 + 12345 = 1103527590; >> 8 = 4310654; mod 1000 = 654.
        assert_eq!(keys.sequence(0)[0], 654);
        assert_ne!(keys.sequence(0), keys.sequence(1));
        assert_eq!(keys.key(7), "st:0000000007");
    }
}
