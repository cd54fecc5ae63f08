//! The consistent hashing of libketama, which memcached clients and twemproxy use too: each server has 160
//! points on a ring of 32 bits, and a key belongs to the next point.

use md5::{Digest, Md5};

/// Digests per server; each gives four points.
const DIGESTS: u32 = 40;

/// The ring.
pub(super) struct Ring {
    /// Points in order, each with the number of its server.
    points: Vec<(u32, usize)>,
}

impl Ring {
    /// A ring of servers of the same weight, known by these names.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Ring {
        let mut points: Vec<(u32, usize)> = Vec::new();
        for (server, name) in names.into_iter().enumerate() {
            for number in 0..DIGESTS {
                let digest = Md5::digest(format!("{name}-{number}"));
                points.extend((0..4).map(|part| (point(&digest, part), server)));
            }
        }
        points.sort_unstable();
        Ring { points }
    }

    /// The number of the server that a key belongs to; 0 when there is none at all.
    pub(super) fn server(&self, key: &str) -> usize {
        let place = point(&Md5::digest(key), 0);
        let next = self.points.partition_point(|(point, _)| *point < place);
        self.points
            .get(next)
            .or(self.points.first())
            .map_or(0, |(_, server)| *server)
    }
}

fn point(digest: &[u8], part: usize) -> u32 {
    digest
        .iter()
        .skip(part * 4)
        .take(4)
        .rev()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(servers: usize) -> Vec<usize> {
        let names: Vec<String> = (0..servers).map(|i| format!("127.0.0.1:{}", 7000 + i)).collect();
        let ring = Ring::new(names.iter().map(String::as_str));
        assert_eq!(ring.points.len(), servers * 160);
        let mut shares = vec![0; servers];
        for i in 0..10_000 {
            shares[ring.server(&format!("st:{i:010}"))] += 1;
        }
        shares
    }

    #[test]
    fn keys_are_spread_evenly() {
        for servers in [1, 2, 5] {
            for share in shares(servers) {
                let fair = 10_000 / servers;
                assert!(
                    share > fair * 7 / 10 && share < fair * 13 / 10,
                    "{share} of {fair}"
                );
            }
        }
    }

    #[test]
    fn one_more_server_moves_only_what_it_takes() {
        let names = ["a:1", "b:1", "c:1", "d:1", "e:1"];
        let (four, five) = (Ring::new(names[..4].iter().copied()), Ring::new(names));
        for i in 0..10_000 {
            let key = format!("st:{i:010}");
            let now = five.server(&key);
            assert!(now == 4 || now == four.server(&key), "{key}");
        }
    }

    #[test]
    fn a_point_is_little_endian_as_in_libketama() {
        assert_eq!(point(&[1, 2, 3, 4, 5, 6, 7, 8], 1), 0x0807_0605);
    }
}
