/// The way of IP fragments through the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fragments {
    /// Rules see the ports of a first fragment as 0.
    #[default]
    Normal,
    Drop,
    /// Rules see the ports that a first fragment has.
    Match,
}

impl Fragments {
    /// The bits in OpenFlow's configuration of a switch.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Normal => 0,
            Self::Drop => 1,
            Self::Match => 3,
        }
    }

    /// `None` for reassembly, which the switch does not do.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::Normal, Self::Drop, Self::Match].into_iter().find(|way| way.number() == number)
    }
}
