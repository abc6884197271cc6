//! Values as bytes, in an order that both sides use: big-endian, texts in UTF-8 behind their
//! length.

use jni::Env;
use jni::errors::Error;
use jni::objects::JByteArray;
use sanderling_native::{Metadata, Value};
use sanderling_protocol::message::{Attributes, ObjectKind};
use sanderling_protocol::{Millis, Path};

use crate::error::NativeError;

/// Encodes values for Java.
#[derive(Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    /// Returns what `encode` encodes.
    pub(crate) fn build(encode: impl FnOnce(&mut Self) -> &mut Self) -> Self {
        let mut encoder = Self::default();
        encode(&mut encoder);
        encoder
    }

    /// Returns them as an array of Java's.
    pub(crate) fn array<'local>(&self, env: &mut Env<'local>) -> Result<JByteArray<'local>, Error> {
        env.byte_array_from_slice(&self.0)
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Encodes a number, or -1 for none.
    pub(crate) fn optional(&mut self, number: Option<u64>) -> &mut Self {
        self.number(number.map_or(-1, |number| number as i64))
    }

    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        let count = i32::try_from(count).expect("values are far below two gigabytes");
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

    /// Encodes metadata in the order of its schema.
    pub(crate) fn metadata(&mut self, metadata: &impl Metadata) -> &mut Self {
        metadata.fields().into_iter().fold(self, |encoder, (_, value)| match value {
            Value::Text(text) => encoder.text(&text),
            Value::Number(number) => encoder.number(number as i64),
            Value::Optional(number) => encoder.optional(number),
            Value::Flag(flag) => encoder.flag(flag),
            Value::Kind(it) => encoder.small(kind(it)),
            // The store counts microseconds.
            Value::Instant(instant) => encoder.number((instant.0 / 1000) as i64),
            Value::Duration(duration) => encoder.number(Millis::from(duration).0 as i64),
            Value::Texts(texts) => encoder.texts(texts),
        })
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

    /// Returns a text that is none when it is empty.
    pub(crate) fn some_text(&mut self) -> Result<Option<&'a str>, NativeError> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, NativeError> {
        let count = self.count()?;
        std::str::from_utf8(self.take(count)?).map_err(|_| NativeError::Malformed)
    }

    /// Decodes the next value.
    pub(crate) fn next<T: Decode>(&mut self) -> Result<T, NativeError> {
        T::decode(self)
    }
}

/// What Java passes encoded.
pub(crate) trait Decode: Sized {
    /// # Errors
    /// [`NativeError::Malformed`] for bytes in another order, and the refusals of the value itself.
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError>;
}

impl Decode for String {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        decoder.text().map(str::to_owned)
    }
}

impl Decode for Path {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        Ok(decoder.text()?.parse()?)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        (0..decoder.count()?).map(|_| decoder.next()).collect()
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        Ok((decoder.next()?, decoder.next()?))
    }
}

impl Decode for Attributes {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        Ok(decoder.next::<Vec<(String, String)>>()?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_in_the_order_in_which_they_were_encoded() {
        let mut encoder = Encoder::default();
        encoder.number(-7).flag(true).text("ä/𝄞").count(2).text("/a").text("/b").number(-1);
        let mut decoder = Decoder::new(&encoder.0);
        assert!(matches!(decoder.number(), Ok(-7)));
        assert!(matches!(decoder.flag(), Ok(true)));
        assert!(matches!(decoder.text(), Ok("ä/𝄞")));
        assert!(decoder.next::<Vec<Path>>().is_ok_and(|paths| paths.len() == 2));
        assert!(matches!(decoder.optional(), Ok(None)));
        assert!(matches!(decoder.number(), Err(NativeError::Malformed)));
    }

    #[test]
    fn values_that_end_early_are_refused() {
        let mut encoder = Encoder::default();
        encoder.count(1000).all(b"/a");
        assert!(matches!(Decoder::new(&encoder.0).text(), Err(NativeError::Malformed)));
        assert!(matches!(
            Decoder::new(&encoder.0).next::<Vec<Path>>(),
            Err(NativeError::Malformed)
        ));
    }
}
