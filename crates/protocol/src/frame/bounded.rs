//! Decoding within a bound on memory.
//!
//! An element of a list may be one byte on the wire and a hundred in memory, so a body of 16 MiB
//! could become gigabytes. Here each element of a list or a map counts with its size before it is
//! read, and decoding ends where the sum exceeds what a message of that many bytes may have.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// What a text costs beside its bytes: the allocator's own, and the least that it gives out. The
/// smallest piece of glibc's `malloc` on 64 bits has 32 bytes.
const TEXT_BYTES: usize = 32;

/// Memory that may still be taken.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), is_exceeded: Cell::new(false) }
    }

    /// Returns whether something did not fit.
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    #[inline]
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.is_exceeded.set(true);
                Err(E::custom("more memory than a message may take"))
            }
        }
    }
}

/// Decodes a message from the start of some bytes; returns what follows it.
pub(crate) fn take_within<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    budget: &Budget,
) -> postcard::Result<(T, &'de [u8])> {
    let mut decoder = postcard::Deserializer::from_bytes(bytes);
    let message = T::deserialize(Bounded { inner: &mut decoder, budget })?;
    Ok((message, decoder.finalize()?))
}

/// Something of serde's with the budget at its side: a deserializer, a visitor, an access, a seed.
struct Bounded<'b, T> {
    inner: T,
    budget: &'b Budget,
}

/// Something of serde's that sees elements, with the budget at its side: those of a list count.
struct Elements<'b, T> {
    inner: T,
    budget: &'b Budget,
    is_counted: bool,
}

macro_rules! as_it_is {
    ($($name:ident)*) => {
        $(#[inline]
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$name(visitor)
        })*
    };
}

impl<'b, D> Bounded<'b, D> {
    #[inline]
    fn apart<V>(self, visitor: V, is_counted: bool) -> (D, Elements<'b, V>) {
        let Self { inner, budget } = self;
        (inner, Elements { inner: visitor, budget, is_counted })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    as_it_is! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_bytes deserialize_unit deserialize_identifier
        deserialize_ignored_any
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.budget.take(TEXT_BYTES)?;
        self.inner.deserialize_string(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.budget.take(TEXT_BYTES)?;
        self.inner.deserialize_byte_buf(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_option(visitor)
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_newtype_struct(name, visitor)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, true);
        inner.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_tuple(length, visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_tuple_struct(name, length, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, true);
        inner.deserialize_map(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_struct(name, fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.deserialize_enum(name, variants, visitor)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Elements<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { inner: visitor, budget, is_counted } = self;
        visitor.visit_seq(Elements { inner, budget, is_counted })
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { inner: visitor, budget, is_counted } = self;
        visitor.visit_map(Elements { inner, budget, is_counted })
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Bounded { inner, budget: self.budget })
    }
}

impl<T> Elements<'_, T> {
    /// Counts an element that is about to be read.
    #[inline]
    fn count<V, E: Error>(&self) -> Result<(), E> {
        if self.is_counted { self.budget.take(size_of::<V>()) } else { Ok(()) }
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        inner: T,
    ) -> Result<Option<T::Value>, A::Error> {
        self.count::<T::Value, _>()?;
        self.inner.next_element_seed(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        inner: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.count::<K::Value, _>()?;
        self.inner.next_key_seed(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, inner: V) -> Result<V::Value, A::Error> {
        self.count::<V::Value, _>()?;
        self.inner.next_value_seed(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, T> {
    type Value = T::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Bounded { inner, budget: self.budget })
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'b, A> {
    type Error = A::Error;
    type Variant = Bounded<'b, A::Variant>;

    #[inline]
    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), A::Error> {
        let (variant, inner) = self.inner.variant_seed(seed)?;
        Ok((variant, Bounded { inner, budget: self.budget }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, inner: T) -> Result<T::Value, A::Error> {
        self.inner.newtype_variant_seed(Bounded { inner, budget: self.budget })
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.tuple_variant(length, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (inner, visitor) = self.apart(visitor, false);
        inner.struct_variant(fields, visitor)
    }
}
