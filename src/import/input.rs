//! Opening what the user names: a file, a pipe, standard input, compressed or not.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::{ImportError, Imported};

/// Opens a file, or standard input for `-`.
///
/// # Errors
/// What opening says, with the path, and that a directory is none.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(named)?;
    if file.metadata().map_err(named)?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            format!(
                "{} is a directory: name the files in it (of strace -ff, all of them together)",
                path.display()
            ),
        ));
    }
    Ok(Box::new(file))
}

/// Whether packed data ended before its end; known once it has been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Torn(Rc<Cell<bool>>);

impl Torn {
    /// Whether it did.
    pub(super) fn is_set(&self) -> bool {
        self.0.get()
    }

    /// Puts the true reason in the place of what an importer says of data that ended too early.
    pub(super) fn explain(&self, error: ImportError) -> ImportError {
        match error {
            ImportError::Empty | ImportError::Unrecognised { .. } | ImportError::NotThisFormat { .. }
                if self.0.get() =>
            {
                let what = "the compressed data ends in the middle, before anything that can be imported";
                ImportError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
            error => error,
        }
    }

    /// Marks what was read from such data as a part of the whole.
    pub(super) fn note(&self, imported: &mut Imported) {
        if self.0.get() {
            imported.cut("the compressed data ends in the middle");
        }
    }
}

/// Whether unpacking failed because there was no more to unpack, however deep the decoder hides that.
fn ends_early(error: &io::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
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

/// Compressed data of which what is there counts, as with a plain file that was cut.
struct Lenient<R> {
    packed: R,
    torn: Torn,
}

impl<R: Read> Read for Lenient<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.torn.0.get() {
            return Ok(0);
        }
        match self.packed.read(out) {
            Err(e) if ends_early(&e) => {
                self.torn.0.set(true);
                Ok(0)
            }
            result => result,
        }
    }
}

/// The input, unpacked when it begins as gzip or zstd data does.
///
/// # Errors
/// When reading the first bytes fails, or the zstd header is damaged.
pub(super) fn decompressed(input: Box<dyn Read>) -> Result<(Box<dyn Read>, Torn), ImportError> {
    let torn = Torn::default();
    let input = unpacked(input, torn.clone())?;
    Ok((input, torn))
}

fn unpacked(mut input: Box<dyn Read>, torn: Torn) -> Result<Box<dyn Read>, ImportError> {
    let mut magic = [0; 4];
    let mut have = 0;
    while have < magic.len() {
        match input.read(&mut magic[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let whole = io::Cursor::new(magic).take(have as u64).chain(input);
    Ok(if magic.starts_with(&[0x1f, 0x8b]) {
        let packed = flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(64 << 10, whole));
        Box::new(Lenient { packed, torn })
    } else if magic == [0x28, 0xb5, 0x2f, 0xfd] {
        let packed = Zstd::new(BufReader::with_capacity(64 << 10, Box::new(whole)))?;
        Box::new(Lenient { packed, torn })
    } else {
        Box::new(whole)
    })
}

type Packed = BufReader<Box<dyn Read>>;

/// zstd data: frames behind one another, as `cat a.zst b.zst` makes them.
struct Zstd {
    /// The frame being read; `None` behind the last one.
    frame: Option<StreamingDecoder<Packed, FrameDecoder>>,
}

impl Zstd {
    fn new(input: Packed) -> io::Result<Zstd> {
        let frame = StreamingDecoder::new(input)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd data: {e}")))?;
        Ok(Zstd { frame: Some(frame) })
    }
}

impl Read for Zstd {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let n = frame.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            let mut rest = match self.frame.take() {
                Some(frame) => frame.into_inner(),
                None => break,
            };
            if !rest.fill_buf()?.is_empty() {
                *self = Zstd::new(rest)?;
            }
        }
        Ok(0)
    }
}
