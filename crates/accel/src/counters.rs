/// Declares a struct of counters in the order of a struct of bpf/, whose fields are all `u64`. A
/// counter has a unit of [`units`] behind its name, or counts events.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $counter:ident $(: $unit:ident)?,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$doc])* pub $counter: counters!(@type $($unit)?),)*
        }

        impl $name {
            /// Reads the counters. A counter beyond the end of `bytes` is 0.
            pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
                let (words, _) = bytes.as_chunks::<8>();
                let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
                let mut next = || words.next().unwrap_or_default();
                Self { $($counter: counters!(@of next() $(, $unit)?),)* }
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| Self {
                    $($counter: sum.$counter + one.$counter,)*
                })
            }
        }
    };
    (@type) => { u64 };
    (@type $unit:ident) => { units::$unit };
    (@of $word:expr) => { $word };
    (@of $word:expr, $unit:ident) => { units::$unit::new($word) };
}
pub(crate) use counters;
