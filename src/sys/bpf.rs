//! bpf(2): maps, type information, programs and links, each owning its descriptor. A program loaded here
//! is checked by the kernel's verifier, so a wrong one is an error and never harm.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// One instruction as the kernel reads it (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source in the high four.
    pub registers: u8,
    /// Jump distance or displacement.
    pub offset: i16,
    /// Constant.
    pub immediate: i32,
}

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

/// Type information (BTF) of our own values, which task storage demands.
#[derive(Debug)]
pub struct Types(OwnedFd);

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program attached to its tracepoint, until this is dropped.
#[derive(Debug)]
pub struct Link {
    // Only held: closing it detaches.
    _fd: OwnedFd,
}

/// Why a program was not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// What bpf(2) said.
    pub errno: Errno,
    /// The verifier's words; empty when it was not asked.
    pub log: String,
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;
/// How often a program is offered again to a verifier that was interrupted.
const LOAD_RETRIES: usize = 20;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_BTF_LOAD: libc::c_long = 18;

const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_RAW_TP: u32 = 23;
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

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
    btf: u32,
    func_info_size: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
}

#[repr(C)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _pad: u32,
}

#[repr(C)]
struct BtfLoad {
    btf: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    _pad: u32,
}

/// Bytes of `struct bpf_prog_info` up to and including `recursion_misses` (Linux 5.12), and where that is.
const PROGRAM_INFO_BYTES: usize = 216;
const PROGRAM_INFO_MISSES: usize = 208;

/// bpf(2). Returns what the kernel returned.
///
/// # Safety
/// `attribute` must be the kernel's structure for `command`, and every address in it must be live and
/// large enough for what the command reads or writes there.
unsafe fn bpf<T>(command: libc::c_long, attribute: &mut T) -> Result<i32, Errno> {
    // SAFETY: the size is that of the live structure; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attribute),
            size_of::<T>(),
        )
    };
    Errno::result(result).map(|value| value as i32)
}

/// As [`bpf`], for commands that return a new descriptor (which is always closed on exec).
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_fd<T>(command: libc::c_long, attribute: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attribute) }?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    // A descriptor that is open is never negative.
    fd.as_raw_fd() as u32
}

/// A name for `bpftool prog` and `bpftool map`: fifteen bytes at most, the rest zero.
fn short_name(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    short
}

impl Types {
    /// Loads a BTF image.
    ///
    /// # Errors
    /// EPERM without the right, EINVAL when the image is malformed.
    pub fn load(image: &[u8]) -> Result<Types, Errno> {
        let mut attribute = BtfLoad {
            btf: image.as_ptr() as u64,
            log: 0,
            size: u32::try_from(image.len()).map_err(|_| Errno::E2BIG)?,
            log_size: 0,
            log_level: 0,
            _pad: 0,
        };
        // SAFETY: the image is live and `size` is its length.
        unsafe { bpf_fd(BPF_BTF_LOAD, &mut attribute) }.map(Types)
    }
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

impl Program {
    /// Loads a program for the tracepoint whose `btf_trace_…` type has this id in the kernel's BTF.
    ///
    /// # Errors
    /// EPERM without the right; otherwise what the verifier found.
    pub fn load(
        name: &str,
        instructions: &[Instruction],
        license: &str,
        attach_btf_id: u32,
    ) -> Result<Program, Rejected> {
        // The verifier gives up with EAGAIN when a signal is pending for this thread (`do_check` in
        // kernel/bpf/verifier.c); a child that ends elsewhere is enough, so it is asked again.
        let mut quick = Program::try_load(name, instructions, license, attach_btf_id, &mut []);
        for _ in 0..LOAD_RETRIES {
            if !matches!(quick, Err(Errno::EAGAIN)) {
                break;
            }
            quick = Program::try_load(name, instructions, license, attach_btf_id, &mut []);
        }
        match quick {
            Err(errno @ (Errno::EACCES | Errno::EINVAL | Errno::E2BIG)) => {
                // The verifier's words cost time, so they are asked for only when there is something to say.
                let mut log = vec![0u8; 1 << 20];
                match Program::try_load(name, instructions, license, attach_btf_id, &mut log) {
                    Ok(program) => Ok(program),
                    Err(_) => {
                        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                        let log = String::from_utf8_lossy(&log[..end]).into_owned();
                        Err(Rejected { errno, log })
                    }
                }
            }
            other => other.map_err(|errno| Rejected {
                errno,
                log: String::new(),
            }),
        }
    }

    fn try_load(
        name: &str,
        instructions: &[Instruction],
        license: &str,
        attach_btf_id: u32,
        log: &mut [u8],
    ) -> Result<Program, Errno> {
        let license = CString::new(license).map_err(|_| Errno::EINVAL)?;
        let mut attribute = ProgramLoad {
            kind: BPF_PROG_TYPE_TRACING,
            count: u32::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: u32::try_from(log.len()).map_err(|_| Errno::E2BIG)?,
            log: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            kernel_version: 0,
            flags: 0,
            name: short_name(name),
            ifindex: 0,
            attach_type: BPF_TRACE_RAW_TP,
            btf: 0,
            func_info_size: 0,
            func_info: 0,
            func_info_count: 0,
            line_info_size: 0,
            line_info: 0,
            line_info_count: 0,
            attach_btf_id,
        };
        // SAFETY: `instructions` and `license` are live with the given length and terminator; the log is
        // written up to `log_size`.
        unsafe { bpf_fd(BPF_PROG_LOAD, &mut attribute) }.map(Program)
    }

    /// Attaches it to its tracepoint.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn attach(&self) -> Result<Link, Errno> {
        let mut attribute = RawTracepointOpen {
            name: 0,
            program: number(&self.0),
            _pad: 0,
        };
        // SAFETY: a null name means the tracepoint that the program was loaded for.
        unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut attribute) }.map(|fd| Link { _fd: fd })
    }

    /// How often the kernel did not run it because it was running on that CPU already.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn misses(&self) -> Result<u64, Errno> {
        let mut info = [0u8; PROGRAM_INFO_BYTES];
        let mut attribute = InfoByFd {
            fd: number(&self.0),
            length: PROGRAM_INFO_BYTES as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: the kernel writes `length` bytes at most; the lengths of the lists in it are zero.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attribute) }?;
        let mut misses = [0u8; 8];
        misses.copy_from_slice(&info[PROGRAM_INFO_MISSES..PROGRAM_INFO_MISSES + 8]);
        Ok(u64::from_ne_bytes(misses))
    }
}
