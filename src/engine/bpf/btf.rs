//! The kernel's own description of its types (BTF): where the members that our programs read lie in this
//! very kernel, and the ids of the tracepoints they attach to. And the few types of our own that task
//! storage asks for.
//!
//! Source of the format: `Documentation/bpf/btf.rst` in the kernel.

use std::collections::HashMap;

/// Why a BTF image could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BtfError {
    /// Not BTF, or cut off.
    #[error("the kernel's BTF is malformed at byte {0}")]
    Malformed(usize),
    /// A kind of type that is not known here, whose length is therefore not known either.
    #[error("the kernel's BTF holds an unknown kind of type ({0})")]
    UnknownKind(u32),
    /// Something that is needed is not in it.
    #[error("the kernel's BTF has no {0}")]
    Missing(String),
}

const MAGIC: u32 = 0xeb9f;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;

/// How many bytes follow the twelve of a type's head.
fn tail(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // int, variable, declaration tag
        1 | 14 | 17 => 4,
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        KIND_ARRAY => 12,
        // struct, union, data section, 64-bit enumeration
        KIND_STRUCT | KIND_UNION | 15 | 19 => members * 12,
        // enumeration, function prototype
        6 | 13 => members * 8,
        _ => return None,
    })
}

/// A parsed image: the types that can be asked for by name.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    image: &'a [u8],
    strings: usize,
    /// Where each type begins, by id; id 0 is void.
    types: Vec<usize>,
    structs: HashMap<&'a [u8], u32>,
    typedefs: HashMap<&'a [u8], u32>,
}

impl<'a> Btf<'a> {
    /// Reads the image of `/sys/kernel/btf/vmlinux`.
    pub(super) fn parse(image: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        let mut btf = Btf {
            image,
            strings: 0,
            types: vec![0],
            structs: HashMap::new(),
            typedefs: HashMap::new(),
        };
        if btf.word(0)? & 0xffff != MAGIC {
            return Err(BtfError::Malformed(0));
        }
        let header = btf.word(4)? as usize;
        let start = header + btf.word(8)? as usize;
        let end = start + btf.word(12)? as usize;
        btf.strings = header + btf.word(16)? as usize;
        let mut at = start;
        while at < end {
            let info = btf.word(at + 4)?;
            let kind = info >> 24 & 0x1f;
            let id = btf.types.len() as u32;
            btf.types.push(at);
            // The first of a name is the kernel's own; later ones are private namesakes of some file.
            match kind {
                KIND_STRUCT => {
                    let name = btf.name(btf.word(at)?)?;
                    btf.structs.entry(name).or_insert(id);
                }
                KIND_TYPEDEF => {
                    let name = btf.name(btf.word(at)?)?;
                    btf.typedefs.entry(name).or_insert(id);
                }
                _ => {}
            }
            at += 12 + tail(kind, (info & 0xffff) as usize).ok_or(BtfError::UnknownKind(kind))?;
        }
        Ok(btf)
    }

    /// The id of the type by which a program names a raw tracepoint.
    pub(super) fn tracepoint(&self, name: &str) -> Result<u32, BtfError> {
        let name = format!("btf_trace_{name}");
        self.typedefs
            .get(name.as_bytes())
            .copied()
            .ok_or(BtfError::Missing(name))
    }

    /// The byte offset of a member of a structure; members of unnamed inner structures count as its own,
    /// and a dotted path leads into named ones (`thread_info.status`).
    pub(super) fn offset(&self, structure: &str, path: &str) -> Result<i16, BtfError> {
        let missing = || BtfError::Missing(format!("member {path} of struct {structure}"));
        let mut id = *self.structs.get(structure.as_bytes()).ok_or_else(missing)?;
        let mut bits = 0;
        for name in path.split('.') {
            let (member, offset) = self.member(id, name.as_bytes(), 0)?.ok_or_else(missing)?;
            id = member;
            bits += offset;
        }
        i16::try_from(bits / 8).map_err(|_| missing())
    }

    /// The type and bit offset of a member.
    fn member(&self, id: u32, wanted: &[u8], depth: u32) -> Result<Option<(u32, u32)>, BtfError> {
        let Some(&at) = self.types.get(id as usize).filter(|_| id != 0 && depth < 8) else {
            return Ok(None);
        };
        let info = self.word(at + 4)?;
        if !matches!(info >> 24 & 0x1f, KIND_STRUCT | KIND_UNION) {
            return Ok(None);
        }
        let bitfields = info >> 31 == 1;
        for i in 0..(info & 0xffff) as usize {
            let entry = at + 12 + i * 12;
            let name = self.name(self.word(entry)?)?;
            let kind = self.word(entry + 4)?;
            let raw = self.word(entry + 8)?;
            // With bit fields in the structure the high byte of an offset is the width.
            let offset = if bitfields { raw & 0x00ff_ffff } else { raw };
            if name == wanted {
                return Ok(Some((kind, offset)));
            }
            if name.is_empty()
                && let Some((inner, further)) = self.member(kind, wanted, depth + 1)?
            {
                return Ok(Some((inner, offset + further)));
            }
        }
        Ok(None)
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = self.image.get(at..at + 4).ok_or(BtfError::Malformed(at))?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn name(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        let start = self.strings + offset as usize;
        let rest = self.image.get(start..).ok_or(BtfError::Malformed(start))?;
        let end = rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(BtfError::Malformed(start))?;
        Ok(&rest[..end])
    }
}

/// The ids of the key and the value type in what [`own_types`] makes.
pub(super) const OWN_IDS: (u32, u32) = (1, 2);

/// An image with an `int`, the type of a pidfd, and an array of them as long as a value of task storage.
pub(super) fn own_types(value_bytes: u32) -> Vec<u8> {
    const NAMES: &[u8] = b"\0int\0";
    let int = [1, KIND_INT << 24, 4, 1 << 24 | 32];
    let array = [0, KIND_ARRAY << 24, 0, 1, 1, value_bytes / 4];
    let types_bytes = (int.len() + array.len()) as u32 * 4;
    let header = [
        MAGIC | 1 << 16,
        24,
        0,
        types_bytes,
        types_bytes,
        NAMES.len() as u32,
    ];
    let words = header.into_iter().chain(int).chain(array);
    words
        .flat_map(u32::to_ne_bytes)
        .chain(NAMES.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// struct s { int a; union { int x; struct inner { int p, q; } in; }; }; typedef … btf_trace_sys_enter
    fn sample() -> Vec<u8> {
        let names = b"\0int\0s\0a\0x\0in\0p\0q\0inner\0btf_trace_sys_enter\0";
        let name = |wanted: &str| {
            let wanted = [b"\0", wanted.as_bytes(), b"\0"].concat();
            names.windows(wanted.len()).position(|w| w == wanted).unwrap() as u32 + 1
        };
        let types: Vec<u32> = [
            vec![name("int"), KIND_INT << 24, 4, 32],
            vec![
                name("inner"),
                KIND_STRUCT << 24 | 2,
                8,
                name("p"),
                1,
                0,
                name("q"),
                1,
                32,
            ],
            vec![0, KIND_UNION << 24 | 2, 8, name("x"), 1, 0, name("in"), 2, 0],
            // The kind flag is set, as when there are bit fields; the width byte is not part of the offset.
            vec![
                name("s"),
                1 << 31 | KIND_STRUCT << 24 | 2,
                12,
                name("a"),
                1,
                32 << 24,
                0,
                3,
                32,
            ],
            vec![name("btf_trace_sys_enter"), KIND_TYPEDEF << 24, 1],
        ]
        .concat();
        let bytes = types.len() as u32 * 4;
        let header = [MAGIC | 1 << 16, 24, 0, bytes, bytes, names.len() as u32];
        header
            .into_iter()
            .chain(types)
            .flat_map(u32::to_ne_bytes)
            .chain(names.iter().copied())
            .collect()
    }

    #[test]
    fn members_are_found_through_unnamed_and_named_structures() {
        let image = sample();
        let btf = Btf::parse(&image).unwrap();
        assert_eq!(btf.offset("s", "a"), Ok(0));
        assert_eq!(btf.offset("s", "x"), Ok(4));
        assert_eq!(btf.offset("s", "in.q"), Ok(8));
        assert!(btf.offset("s", "q").is_err());
        assert!(btf.offset("t", "a").is_err());
        assert_eq!(btf.tracepoint("sys_enter"), Ok(5));
        assert!(btf.tracepoint("sys_exit").is_err());
    }

    #[test]
    fn a_broken_image_is_an_error() {
        let image = sample();
        for cut in 0..image.len() {
            let _ = Btf::parse(&image[..cut]);
        }
        assert!(Btf::parse(&[]).is_err());
        assert!(Btf::parse(&[0xff; 64]).is_err());
        let mut unknown = image.clone();
        unknown[24 + 7] = 0x1f;
        assert_eq!(Btf::parse(&unknown).unwrap_err(), BtfError::UnknownKind(31));
    }

    #[test]
    fn own_types_can_be_read_back() {
        let image = own_types(48);
        let btf = Btf::parse(&image).unwrap();
        assert_eq!(btf.types.len(), 3);
    }
}
