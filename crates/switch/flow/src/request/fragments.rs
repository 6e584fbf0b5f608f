/// How the tables handle IP fragments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fragments {
    /// Rules see the ports of a first fragment as 0.
    #[default]
    Normal,
    Drop,
    /// Rules see the ports of a first fragment.
    Match,
}

impl Fragments {
    /// Returns the mode's value in the flags of OpenFlow's switch configuration.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Normal => 0,
            Self::Drop => 1,
            Self::Match => 3,
        }
    }

    /// Returns the mode with this number; `None` for reassembly, which the tables do not support.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::Normal, Self::Drop, Self::Match].into_iter().find(|way| way.number() == number)
    }
}
