//! One value of each variant of a type, made without knowing the type: numbers count up, texts are
//! paths, lists have two entries, and of enums inside the first variant is taken.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Write;

use sanderling_protocol::frame::encode_body;
use serde::de::value::Error;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::{Serialize, forward_to_deserialize_any};

/// Generates values of any type.
struct Sampler {
    /// The variant of the outermost enum; the first of all others.
    variant: Option<u32>,
    number: u64,
    /// The name of that variant, and how many the enum has.
    found: Option<(&'static str, usize)>,
}

impl Sampler {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// Returns a line for each variant of an enum: its place, its name and the bytes of a value.
///
/// # Panics
/// When a variant cannot be made or is not read back as it was written.
pub(crate) fn lines<T: DeserializeOwned + Serialize>(type_name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut count = 1;
    while lines.len() < count {
        let place = lines.len() as u32;
        let mut sampler = Sampler { variant: Some(place), number: 0, found: None };
        let value = T::deserialize(&mut sampler);
        let (name, variants) = sampler.found.expect("the type is an enum");
        count = variants;
        let bytes = match value {
            Ok(value) => {
                let bytes = encode_body(&value);
                let again: T = sanderling_protocol::frame::decode_body(&bytes).expect(name);
                assert_eq!(encode_body(&again), bytes, "{type_name}::{name}");
                bytes
            }
            // A type that checks what it is made of: its place in the list counts all the same.
            Err(_) => Vec::new(),
        };
        let mut line = format!("{type_name} {place} {name} ");
        for byte in bytes {
            write!(line, "{byte:02x}").expect("a string takes everything");
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Compares lines with the file of golden bytes. Lines that the file has must be the same; new ones
/// are added to it by hand, at the end of their type: `GOLDEN_WRITE=1` does it.
///
/// # Panics
/// When a line of the file has changed or is gone, or a new one is not in it.
pub(crate) fn compare(file: &str, lines: &[String]) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let golden: Vec<&str> = text.lines().collect();
    let changed: Vec<&&str> =
        golden.iter().filter(|line| !lines.iter().any(|found| found == **line)).collect();
    assert!(changed.is_empty(), "what older releases wrote is no longer written: {changed:#?}");
    let new: Vec<&String> = lines.iter().filter(|line| !golden.contains(&line.as_str())).collect();
    if std::env::var_os("GOLDEN_WRITE").is_some() {
        std::fs::write(file, lines.join("\n") + "\n").expect("the file can be written");
        return;
    }
    assert!(new.is_empty(), "{file} lacks these lines; GOLDEN_WRITE=1 adds them: {new:#?}");
}

macro_rules! number {
    ($($deserialize:ident $visit:ident $type:ty),*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.next() as $type;
            visitor.$visit(number)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Sampler {
    type Error = Error;

    number!(
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64
    );

    forward_to_deserialize_any! { f32 f64 char i128 u128 identifier ignored_any }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("the type does not name what it needs"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.next();
        visitor.visit_bool(number % 2 == 1)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.next();
        visitor.visit_string(format!("/s{number}"))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.next() as u8;
        visitor.visit_byte_buf(vec![number, 0xff])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self, 2))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self, length))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self, length))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Several(self, 1))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self, fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.variant.take();
        if let Some(variant) = variant {
            self.found = Some((variants[variant as usize], variants.len()));
        }
        visitor.visit_enum(One(self, variant.unwrap_or(0)))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// So many values, one after the other.
struct Several<'a>(&'a mut Sampler, usize);

impl<'de> SeqAccess<'de> for Several<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.1.checked_sub(1) else { return Ok(None) };
        self.1 = left;
        seed.deserialize(&mut *self.0).map(Some)
    }
}

impl<'de> MapAccess<'de> for Several<'_> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.0)
    }
}

/// One variant of an enum.
struct One<'a>(&'a mut Sampler, u32);

impl<'de> EnumAccess<'de> for One<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let variant: Result<T::Value, Error> = seed.deserialize(self.1.into_deserializer());
        Ok((variant?, self))
    }
}

impl<'de> VariantAccess<'de> for One<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self.0, length))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Several(self.0, fields.len()))
    }
}
