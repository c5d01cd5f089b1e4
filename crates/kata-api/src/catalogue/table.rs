//! From the table of the catalogue to the enum of its codes.

macro_rules! catalogue {
    ($($code:ident $reason:ident $severity:ident { cause: $cause:literal, fix: $fix:literal })*) => {
        /// A finding's code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $cause] $reason,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// The finding with this code, such as `KATA2104`.
            pub fn parse(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|found| found.entry().code == code)
            }

            /// The entry of the catalogue.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$reason => &Entry {
                        code: stringify!($code),
                        reason: stringify!($reason),
                        severity: Severity::$severity,
                        cause: $cause,
                        fix: $fix,
                    },)*
                }
            }
        }
    };
}

pub(super) use catalogue;
