//! Values as bytes in an order that both sides know: big-endian, texts in UTF-8 behind their
//! length.

use jni::Env;
use jni::errors::Error;
use jni::objects::JByteArray;
use sanderling_protocol::message::{Attributes, Entry, ObjectKind, ObjectStat};
use sanderling_protocol::{Instant, JobId, Path};

use crate::error::NativeError;

/// Encodes values for Java.
#[derive(Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    /// Returns what `encode` tells.
    pub(crate) fn build(encode: impl FnOnce(&mut Self) -> &mut Self) -> Self {
        let mut encoder = Self::default();
        encode(&mut encoder);
        encoder
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns them as an array of Java's.
    pub(crate) fn array<'local>(&self, env: &mut Env<'local>) -> Result<JByteArray<'local>, Error> {
        env.byte_array_from_slice(&self.0)
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(crate) fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        numbers.iter().fold(self, |encoder, number| encoder.number(*number as i64))
    }

    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        let count = i32::try_from(count).expect("facts are far below two gigabytes");
        self.0.extend_from_slice(&count.to_be_bytes());
        self
    }

    pub(crate) fn small(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub(crate) fn flag(&mut self, flag: bool) -> &mut Self {
        self.small(u8::from(flag))
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len()).all(text.as_bytes())
    }

    pub(crate) fn all(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn texts(&mut self, attributes: &Attributes) -> &mut Self {
        self.count(attributes.iter().count());
        for (name, text) in attributes.iter() {
            self.text(name).text(text);
        }
        self
    }

    /// Encodes the metadata of an object.
    pub(crate) fn stat(&mut self, stat: &ObjectStat) -> &mut Self {
        self.text(stat.path.as_str()).number(stat.object.0 as i64).small(kind(stat.kind));
        self.number(stat.bytes as i64).number(stat.lost_bytes as i64).flag(stat.is_sealed);
        self.number(millis(stat.modified_at)).number(millis(stat.created_at));
        self.number(stat.expires_in.map_or(-1, |left| left.0 as i64));
        self.number(i64::from(stat.blocks)).number(stat.entries as i64);
        self.number(stat.job.map_or(-1, |JobId(job)| job as i64));
        self.text(&stat.class.to_string()).flag(stat.is_listed).flag(stat.delete_after_read);
        self.texts(&stat.attributes)
    }

    /// Encodes one line of a listing as far as it goes.
    pub(crate) fn entry(&mut self, directory: &Path, entry: &Entry) -> &mut Self {
        let above = directory.as_str().trim_end_matches('/');
        self.text(&format!("{above}/{}", entry.name));
        self.number(entry.object.0 as i64).small(kind(entry.kind));
        self.number(entry.bytes as i64).number(entry.lost_bytes as i64).flag(entry.is_sealed);
        self.number(millis(entry.modified_at)).number(-1).number(-1).number(-1).number(-1);
        self.number(-1).text("").flag(true).flag(false);
        self.texts(&entry.attributes)
    }
}

const fn kind(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::File => 0,
        ObjectKind::Directory => 1,
        ObjectKind::Multifile => 2,
        ObjectKind::Table => 3,
        ObjectKind::KeyValue => 4,
    }
}

/// Returns the milliseconds since 1970; the store counts microseconds.
const fn millis(instant: Instant) -> i64 {
    (instant.0 / 1000) as i64
}

/// Decodes values from Java, in their order.
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) const fn new(encoder: &'a [u8]) -> Self {
        Self(encoder)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], NativeError> {
        let (now, later) = self.0.split_at_checked(count).ok_or(NativeError::Malformed)?;
        self.0 = later;
        Ok(now)
    }

    pub(crate) fn number(&mut self) -> Result<i64, NativeError> {
        let bytes = self.take(8)?.try_into().map_err(|_| NativeError::Malformed)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// Returns a number that is none when it is negative.
    pub(crate) fn optional(&mut self) -> Result<Option<u64>, NativeError> {
        Ok(u64::try_from(self.number()?).ok())
    }

    pub(crate) fn count(&mut self) -> Result<usize, NativeError> {
        let bytes = self.take(4)?.try_into().map_err(|_| NativeError::Malformed)?;
        usize::try_from(i32::from_be_bytes(bytes)).map_err(|_| NativeError::Malformed)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, NativeError> {
        Ok(self.take(1)? != [0])
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, NativeError> {
        let count = self.count()?;
        std::str::from_utf8(self.take(count)?).map_err(|_| NativeError::Malformed)
    }

    pub(crate) fn path(&mut self) -> Result<Path, NativeError> {
        Ok(self.text()?.parse()?)
    }

    pub(crate) fn paths(&mut self) -> Result<Vec<Path>, NativeError> {
        (0..self.count()?).map(|_| self.path()).collect()
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, NativeError> {
        (0..self.count()?).map(|_| Ok(self.text()?.to_owned())).collect()
    }

    pub(crate) fn attributes(&mut self) -> Result<Attributes, NativeError> {
        let mut attributes = Attributes::none();
        for _ in 0..self.count()? {
            let name = self.text()?;
            attributes.set(name, self.text()?);
        }
        Ok(attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_in_the_order_in_which_they_were_encoded() {
        let mut encoder = Encoder::default();
        encoder.number(-7).flag(true).text("ä/𝄞").count(2).text("/a").text("/b").number(-1);
        let mut decoder = Decoder::new(encoder.bytes());
        assert!(matches!(decoder.number(), Ok(-7)));
        assert!(matches!(decoder.flag(), Ok(true)));
        assert!(matches!(decoder.text(), Ok("ä/𝄞")));
        assert!(decoder.paths().is_ok_and(|paths| paths.len() == 2));
        assert!(matches!(decoder.optional(), Ok(None)));
        assert!(matches!(decoder.number(), Err(NativeError::Malformed)));
    }

    #[test]
    fn values_that_end_early_are_refused() {
        let mut encoder = Encoder::default();
        encoder.count(1000).all(b"/a");
        assert!(matches!(Decoder::new(encoder.bytes()).text(), Err(NativeError::Malformed)));
        assert!(matches!(Decoder::new(encoder.bytes()).paths(), Err(NativeError::Malformed)));
    }
}
