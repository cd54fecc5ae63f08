//! Unpacking gzip and zstd data while it is read: also several members or frames behind one another, as
//! `cat a.gz b.gz` makes them. What a cut file still holds counts; damage is an error with its place.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::{ImportError, Imported};

/// The first bytes of a gzip member (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The first bytes of a zstd frame (RFC 8878).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest look back that zstd data may ask for: what `zstd -19` needs, twice. It is held in memory.
const MOST_WINDOW: u64 = 16 << 20;

/// Whether packed data ended before its end, and how it is packed; known once it has been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Torn(Rc<Cell<Option<Packing>>>);

impl Torn {
    /// Whether it did.
    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Puts the true reason in the place of what an importer says of data that ended too early.
    pub(super) fn explain(&self, error: ImportError) -> ImportError {
        match (error, self.0.get()) {
            (
                ImportError::Empty | ImportError::Unrecognised { .. } | ImportError::NotThisFormat { .. },
                Some(packing),
            ) => {
                let what = format!(
                    "the compressed data ends in the middle, before anything that can be imported: not all of the {} \
                     data is there",
                    packing.name()
                );
                ImportError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
            (error, _) => error,
        }
    }

    /// Marks what was read from such data as a part of the whole.
    pub(super) fn note(&self, imported: &mut Imported) {
        if self.is_set() {
            imported.cut("the compressed data ends in the middle");
        }
    }
}

/// What is wrong with packed data, and where.
#[derive(Debug, thiserror::Error)]
#[error("the {packing} data is damaged at byte {at}: {what}")]
struct Damage {
    packing: &'static str,
    /// Bytes of packed data before it.
    at: u64,
    what: &'static str,
}

/// The input, unpacked when it begins as gzip or zstd data does.
///
/// # Errors
/// When reading the first bytes fails.
pub(super) fn decompressed(mut input: Box<dyn Read>) -> Result<(Box<dyn Read>, Torn), ImportError> {
    let mut magic = [0; 4];
    let have = fill(&mut input, &mut magic)?;
    let torn = Torn::default();
    let whole: Box<dyn Read> = Box::new(Cursor::new(magic).take(have as u64).chain(input));
    let packing = match (packing_of(magic), foreign(magic)) {
        (Some(packing), _) => packing,
        (None, Some((packing, command))) => return Err(ImportError::Packed { packing, command }),
        (None, None) => return Ok((whole, torn)),
    };
    let state = Rc::new(SourceState::default());
    let mut unpacked = Unpacked {
        packing,
        part: Part::Between(Source {
            input: BufReader::with_capacity(64 << 10, whole),
            state: Rc::clone(&state),
        }),
        first: true,
        state,
        torn: torn.clone(),
    };
    let mut magic = [0; 4];
    let have = fill(&mut unpacked, &mut magic)?;
    let inner = packing_of(magic)
        .map(Packing::name)
        .or(foreign(magic).map(|(name, _)| name));
    if let Some(inner) = inner {
        return Err(ImportError::PackedTwice {
            outer: packing.name(),
            inner,
            command: packing.command(),
        });
    }
    Ok((
        Box::new(Cursor::new(magic).take(have as u64).chain(unpacked)),
        torn,
    ))
}

/// How data that begins so is packed; `None` when it is not, or not in a way that is unpacked here.
fn packing_of(magic: [u8; 4]) -> Option<Packing> {
    if magic.starts_with(&GZIP) {
        Some(Packing::Gzip)
    } else if magic == ZSTD || is_skippable(magic) {
        Some(Packing::Zstd)
    } else {
        None
    }
}

/// Packings that are not unpacked here, by how they begin, and what unpacks them.
fn foreign(magic: [u8; 4]) -> Option<(&'static str, &'static str)> {
    match magic {
        [0xfd, b'7', b'z', b'X'] => Some(("xz", "xz -dc")),
        [b'B', b'Z', b'h', b'1'..=b'9'] => Some(("bzip2", "bzip2 -dc")),
        [0x04, 0x22, 0x4d, 0x18] => Some(("lz4", "lz4 -dc")),
        [b'P', b'K', 0x03, 0x04] => Some(("zip", "unzip -p")),
        _ => None,
    }
}

/// Reads as much as there is; how much that was.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match input.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

/// A frame that holds no data (RFC 8878, 3.1.2); seekable files and `pzstd` have them.
fn is_skippable(magic: [u8; 4]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }

    /// What unpacks it.
    fn command(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip -dc",
            Packing::Zstd => "zstd -dc",
        }
    }
}

/// What is known of the packed input beside its bytes.
#[derive(Debug, Default)]
struct SourceState {
    /// Bytes taken so far.
    at: Cell<u64>,
    /// Why reading failed: decoders wrap it beyond recognition.
    failed: RefCell<Option<io::Error>>,
}

/// The packed input.
struct Source {
    input: BufReader<Box<dyn Read>>,
    state: Rc<SourceState>,
}

impl Source {
    fn keep<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                let kind = e.kind();
                *self.state.failed.borrow_mut() = Some(e);
                Err(kind.into())
            }
            result => result,
        }
    }

    /// The next byte that is no padding, not taken; `None` at the end.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            // Tapes and some disks fill the last block with zeros.
            let zeros = buffer.iter().take_while(|b| **b == 0).count();
            let next = buffer.get(zeros).copied();
            let length = buffer.len();
            self.consume(zeros);
            if next.is_some() || length == 0 {
                return Ok(next);
            }
        }
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(out);
        let n = self.keep(read)?;
        self.state.at.set(self.state.at.get() + n as u64);
        Ok(n)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.input.buffer().is_empty() {
            let filled = self.input.fill_buf().map(|_| ());
            self.keep(filled)?;
        }
        Ok(self.input.buffer())
    }

    fn consume(&mut self, n: usize) {
        self.input.consume(n);
        self.state.at.set(self.state.at.get() + n as u64);
    }
}

type ZstdSource = io::Chain<Cursor<[u8; 4]>, Source>;

/// Where in the packed data we are.
enum Part {
    /// Before a member or frame, or behind the last one.
    Between(Source),
    Gzip(GzDecoder<Source>),
    Zstd(Box<StreamingDecoder<ZstdSource, FrameDecoder>>),
    End,
}

struct Unpacked {
    packing: Packing,
    part: Part,
    first: bool,
    state: Rc<SourceState>,
    torn: Torn,
}

/// Whether unpacking failed because there was no more to unpack, however deep the decoder hides that.
fn ends_early(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::UnexpectedEof
        {
            return true;
        }
        source = error.source();
    }
    false
}

impl Unpacked {
    fn damage(&mut self, at: u64, what: &'static str) -> io::Error {
        self.part = Part::End;
        let packing = self.packing.name();
        io::Error::new(io::ErrorKind::InvalidData, Damage { packing, at, what })
    }

    /// What a decoder's error means: the end of the input, a failed read, or damage.
    fn failed(&mut self, error: &(dyn std::error::Error + 'static), what: &'static str) -> io::Result<usize> {
        self.part = Part::End;
        if let Some(failed) = self.state.failed.borrow_mut().take() {
            return Err(failed);
        }
        if ends_early(error) {
            self.torn.0.set(Some(self.packing));
            return Ok(0);
        }
        Err(self.damage(self.state.at.get(), what))
    }

    /// Begins the next member or frame; nothing more is to be read where the answer is a result.
    fn begin(&mut self, mut source: Source) -> Option<io::Result<usize>> {
        let first = std::mem::replace(&mut self.first, false);
        let next = match source.peek() {
            Ok(Some(next)) => next,
            Ok(None) => return Some(Ok(0)),
            Err(e) => return Some(Err(e)),
        };
        let at = self.state.at.get();
        const BEHIND: &str = "something else stands behind the end of the packed data; cut it off";
        match self.packing {
            Packing::Gzip if !first && next != GZIP[0] => Some(Err(self.damage(at, BEHIND))),
            Packing::Gzip => {
                self.part = Part::Gzip(GzDecoder::new(source));
                None
            }
            Packing::Zstd => {
                let mut magic = [0; 4];
                let have = match fill(&mut source, &mut magic) {
                    Ok(have) => have,
                    Err(e) => return Some(self.failed(&e, BEHIND)),
                };
                if have == magic.len() && is_skippable(magic) {
                    return self.skip(source);
                }
                if magic[..have] != ZSTD[..have] {
                    return Some(Err(self.damage(at, BEHIND)));
                }
                if have < magic.len() {
                    self.part = Part::End;
                    self.torn.0.set(Some(self.packing));
                    return Some(Ok(0));
                }
                match StreamingDecoder::new_with_max_window_size(
                    Cursor::new(magic).chain(source),
                    MOST_WINDOW,
                ) {
                    Ok(decoder) => {
                        self.part = Part::Zstd(Box::new(decoder));
                        None
                    }
                    Err(error) => Some(self.failed(&error, frame_trouble(&error))),
                }
            }
        }
    }

    /// Passes over a frame without data.
    fn skip(&mut self, mut source: Source) -> Option<io::Result<usize>> {
        let mut length = [0; 4];
        let skipped = source.read_exact(&mut length).and_then(|()| {
            let length = u64::from(u32::from_le_bytes(length));
            match io::copy(&mut source.by_ref().take(length), &mut io::sink())? {
                n if n == length => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        });
        match skipped {
            Ok(()) => {
                self.part = Part::Between(source);
                None
            }
            Err(e) => Some(self.failed(&e, UNPACKABLE)),
        }
    }
}

const UNPACKABLE: &str = "from there on it cannot be unpacked; copy or make the file again";
const CHECKSUM: &str = "what was unpacked does not fit its checksum; copy or make the file again";

fn frame_trouble(error: &FrameDecoderError) -> &'static str {
    match error {
        FrameDecoderError::WindowSizeTooBig { .. } => {
            "it asks for more memory than systally takes; unpack it first: zstd -dc --long=31 FILE | systally import -"
        }
        FrameDecoderError::DictNotProvided { .. } => {
            "it was packed with a dictionary; unpack it first: zstd -dc -D DICTIONARY FILE | systally import -"
        }
        _ => "the heading of a frame is damaged; copy or make the file again",
    }
}

impl Read for Unpacked {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let (read, what) = match &mut self.part {
                Part::End => return Ok(0),
                Part::Between(_) => (Ok(0), UNPACKABLE),
                Part::Gzip(decoder) => {
                    let read = decoder.read(out);
                    let what = match decoder.header() {
                        Some(_) => {
                            "from there on it cannot be unpacked, or does not fit its checksum; copy or make the file again"
                        }
                        None => "the heading is damaged; copy or make the file again",
                    };
                    (read, what)
                }
                Part::Zstd(decoder) => (decoder.read(out), UNPACKABLE),
            };
            match read {
                Ok(0) => {}
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
                Err(e) => return self.failed(&e, what),
            }
            let source = match std::mem::replace(&mut self.part, Part::End) {
                Part::End => return Ok(0),
                Part::Between(source) => match self.begin(source) {
                    None => continue,
                    Some(result) => return result,
                },
                Part::Gzip(decoder) => decoder.into_inner(),
                Part::Zstd(decoder) => {
                    let (source, decoder) = decoder.into_parts();
                    let told = decoder.get_checksum_from_data();
                    if told.is_some() && told != decoder.get_calculated_checksum() {
                        return Err(self.damage(self.state.at.get(), CHECKSUM));
                    }
                    source.into_inner().1
                }
            };
            self.part = Part::Between(source);
        }
    }
}
