//! Maps: made, read and written.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::{Types, bpf, bpf_fd, number, short_name};

/// Kinds of map, with the numbers of `enum bpf_map_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// A hash shared by all CPUs.
    Hash = 1,
    /// An array shared by all CPUs.
    Array = 2,
    /// A hash whose values exist once per CPU.
    PerCpuHash = 5,
    /// An array whose values exist once per CPU.
    PerCpuArray = 6,
    /// One value per task, freed with the task. From user space its key is a pidfd.
    TaskStorage = 29,
}

/// What a map looks like.
#[derive(Debug, Clone, Copy)]
pub struct MapShape {
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Most entries; not used by [`MapKind::TaskStorage`].
    pub entries: u32,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    shape: MapShape,
    /// How often the kernel writes a value into a buffer of ours.
    copies: usize,
}

const BPF_MAP_CREATE: libc::c_long = 0;

const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;

const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;

const BPF_F_NO_PREALLOC: u32 = 1;

/// An update that only makes a new entry.
const BPF_NOEXIST: u64 = 1;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
    btf: u32,
    btf_key: u32,
    btf_value: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// Makes a map of any kind but task storage.
    ///
    /// # Errors
    /// EPERM without the right, ENOMEM, EINVAL for a kind this kernel does not know.
    pub fn create(name: &str, shape: MapShape, cpus: usize) -> Result<Map, Errno> {
        Map::new(name, shape, cpus, 0, 0, (0, 0))
    }

    /// Makes task storage, whose key and value types have these ids in `types`.
    ///
    /// # Errors
    /// As [`Map::create`].
    pub fn task_storage(name: &str, value: u32, types: &Types, ids: (u32, u32)) -> Result<Map, Errno> {
        let shape = MapShape {
            kind: MapKind::TaskStorage,
            key: 4,
            value,
            entries: 0,
        };
        Map::new(name, shape, 1, BPF_F_NO_PREALLOC, number(&types.0), ids)
    }

    fn new(
        name: &str,
        shape: MapShape,
        cpus: usize,
        flags: u32,
        btf: u32,
        (btf_key, btf_value): (u32, u32),
    ) -> Result<Map, Errno> {
        let mut attribute = MapCreate {
            kind: shape.kind as u32,
            key: shape.key,
            value: shape.value,
            entries: shape.entries,
            flags,
            inner: 0,
            numa_node: 0,
            name: short_name(name),
            ifindex: 0,
            btf,
            btf_key,
            btf_value,
        };
        // SAFETY: the structure holds no addresses.
        let fd = unsafe { bpf_fd(BPF_MAP_CREATE, &mut attribute) }?;
        let copies = match shape.kind {
            MapKind::Hash | MapKind::Array | MapKind::TaskStorage => 1,
            MapKind::PerCpuHash | MapKind::PerCpuArray => cpus,
        };
        Ok(Map { fd, shape, copies })
    }

    /// Its descriptor, for the programs that use it.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The distance between the per-CPU copies of a value in what [`Map::get`] returns.
    pub fn stride(&self) -> usize {
        (self.shape.value as usize).next_multiple_of(8)
    }

    /// The value of a key; the copies of all possible CPUs one after the other for a per-CPU map.
    ///
    /// # Errors
    /// EINVAL for a key of the wrong length; what bpf(2) says but ENOENT, which is `None`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        self.check_key(key)?;
        let mut value = vec![0u8; self.stride() * self.copies];
        let mut attribute = Element {
            map: number(&self.fd),
            _pad: 0,
            key: key.as_ptr() as u64,
            value: value.as_mut_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the key has the map's key length; the kernel writes one value, or one for each
        // possible CPU rounded up to eight bytes, and `copies` is no less than their number.
        match unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attribute) } {
            Ok(_) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sets the value of a key of a map that is not per CPU.
    ///
    /// # Errors
    /// EINVAL for wrong lengths; what bpf(2) says.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.put_with(key, value, 0)
    }

    fn put_with(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.check_key(key)?;
        if self.copies != 1 || value.len() != self.shape.value as usize {
            return Err(Errno::EINVAL);
        }
        let mut attribute = Element {
            map: number(&self.fd),
            _pad: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags,
        };
        // SAFETY: key and value have the map's lengths and are only read.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attribute) }.map(drop)
    }

    /// All keys. The map must not change meanwhile, or keys may come twice.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0u8; self.shape.key as usize];
            let mut attribute = Element {
                map: number(&self.fd),
                _pad: 0,
                key: keys.last().map_or(0, |last| last.as_ptr() as u64),
                value: next.as_mut_ptr() as u64,
                flags: 0,
            };
            // SAFETY: both buffers have the map's key length; a null key asks for the first.
            match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &mut attribute) } {
                Ok(_) => keys.push(next),
                Err(Errno::ENOENT) => return Ok(keys),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether task storage has a value for the process of a pidfd.
    ///
    /// # Errors
    /// EINVAL for another kind of map; what bpf(2) says.
    pub fn holds_task(&self, pidfd: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(self.get(&pidfd.as_raw_fd().to_ne_bytes())?.is_some())
    }

    /// Sets the task storage of the process of a pidfd.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn put_task(&self, pidfd: BorrowedFd<'_>, value: &[u8]) -> Result<(), Errno> {
        self.put(&pidfd.as_raw_fd().to_ne_bytes(), value)
    }

    /// Makes the task storage of the task of a pidfd. False when it has some already, which stays.
    ///
    /// # Errors
    /// As [`Map::put`]; ESRCH when the task has ended.
    pub fn make_task(&self, pidfd: BorrowedFd<'_>, value: &[u8]) -> Result<bool, Errno> {
        match self.put_with(&pidfd.as_raw_fd().to_ne_bytes(), value, BPF_NOEXIST) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The task storage of the task of a pidfd; `None` when it has none.
    ///
    /// # Errors
    /// EINVAL for another kind of map; what bpf(2) says.
    pub fn task(&self, pidfd: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
        self.get(&pidfd.as_raw_fd().to_ne_bytes())
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() == self.shape.key as usize {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }
}
