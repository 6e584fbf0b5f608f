//! The properties of each action that the rule language and the OpenFlow protocol read.

use std::net::Ipv4Addr;

use super::table::{Kind, make};
use super::{Action, Subfield};
use crate::port_number::PortNumber;
use crate::{Field, Prerequisite};

/// Maximum number of integer arguments of a plain action.
pub const MOST_NUMBERS: usize = 4;

/// The integer arguments of a plain action, in the order of its variant's fields. Unused elements
/// are zero.
pub type Numbers = [u64; MOST_NUMBERS];

/// The properties of an action, apart from its effect in the pipeline.
///
/// A row describes the text and the message of a plain action (`Row::plain`), so the rule language
/// and the protocol need no code for a plain action. For other actions (`Row::own`), the rule
/// language and the protocol have functions.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub(super) kind: Kind,
    /// The name in error texts.
    pub name: &'static str,
    /// The names of a plain action in rules; the first name is printed. Empty for other actions.
    pub words: &'static [&'static str],
    /// The types of the variant's fields.
    pub forms: &'static [Form],
    /// The names of the arguments in rules, as in `fin_timeout(idle_timeout=9,hard_timeout=30)`.
    pub keys: &'static [&'static str],
    pub style: Style,
    /// The argument's name in the error about a text that is not a valid number.
    pub noun: &'static str,
    pub limit: Limit,
    /// The action type in OpenFlow 1.0.
    pub openflow10: Option<u8>,
    /// The action type in OpenFlow 1.1 and later.
    pub openflow11: Option<u8>,
    /// The subtype in Open vSwitch's extension, for versions without an action type for this
    /// action.
    pub nicira: Option<u8>,
    /// Whether ovs-ofctl assumes that OpenFlow 1.0 lacks the action.
    pub needs_openflow_11: bool,
    /// The field that the action writes, unless its arguments name the field.
    pub writes: Option<Field>,
    /// The packet must have a protocol of this list. If the list is empty, the packet must have the
    /// protocol of the written field.
    pub requires: &'static [Prerequisite],
    pub tags: Tags,
    pub mirroring: Mirroring,
    pub instruction: Instruction,
    pub place: ActionSetPlace,
}

/// The type of an argument, which determines its text and its size in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    U8,
    U16,
    U32,
    U64,
    Ethernet,
    Ipv4,
    /// An argument that needs its own functions.
    Own,
}

impl Form {
    /// Returns the number of bytes that the argument takes in a message.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Form::U8 => 1,
            Form::U16 => 2,
            Form::U32 | Form::Ipv4 => 4,
            Form::Ethernet => 6,
            Form::U64 => 8,
            Form::Own => 0,
        }
    }

    /// Returns the multiple at which the argument begins in messages, counted from the action's
    /// first byte.
    #[must_use]
    pub const fn alignment(self) -> usize {
        match self {
            Form::U16 => 2,
            Form::U32 | Form::Ipv4 => 4,
            Form::U64 => 8,
            Form::U8 | Form::Ethernet | Form::Own => 1,
        }
    }
}

/// The syntax of an action with one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `mod_nw_ttl:64`
    Colon,
    /// `push_mpls:0x8847`, with at least this number of digits.
    Hexadecimal(usize),
    /// `set_mpls_tc(3)`. The text is the argument's name in the error if the argument is missing.
    Parentheses(&'static str),
}

/// The values that an action's argument may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub values: Values,
    /// The argument's name in errors about rules. `None`: only messages are checked.
    pub noun: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    All,
    /// Numbers in which only these bits are set. The written field has no bits below the lowest of
    /// these bits.
    Bits(u64),
    UpTo(u64),
    OneOf(&'static [u64]),
}

impl Limit {
    #[must_use]
    pub fn allows(self, number: u64) -> bool {
        match self.values {
            Values::All => true,
            Values::Bits(bits) => number & !bits == 0,
            Values::UpTo(most) => number <= most,
            Values::OneOf(values) => values.contains(&number),
        }
    }
}

/// An action's effect on the headers that precede the network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    Kept,
    /// The packet has a VLAN tag afterwards.
    VlanAdded,
    VlanRemoved,
    /// The packet afterwards has the EtherType that the argument gives.
    EthTypeChanged,
}

/// Whether mirrors copy the packet again after the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirroring {
    Unchanged,
    /// The packet is copied again if the packet has the field that the action writes.
    IfWritten,
    Again,
}

/// The instruction of OpenFlow 1.1 to which an action belongs, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instruction {
    Meter,
    ApplyActions,
    ClearActions,
    WriteActions,
    WriteMetadata,
    GotoTable,
}

/// The place of an action in an action set, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionSetPlace {
    /// An action set ignores the action.
    None,
    PopVlan,
    PopMpls,
    PushMpls,
    PushVlan,
    DecTtl,
    DecMplsTtl,
    /// All actions of this place run. At other places, only the last action runs.
    Changes,
    Queue,
    // Only the last action among all actions of these places runs.
    Track,
    Resubmit,
    Output,
    Group,
}

impl ActionSetPlace {
    #[must_use]
    pub fn is_final(self) -> bool {
        self >= ActionSetPlace::Track
    }
}

impl Row {
    /// Builds the row of an action whose text and message have their own functions.
    pub(super) const fn own(name: &'static str) -> Self {
        Self {
            kind: Kind::FIRST,
            name,
            words: &[],
            forms: &[],
            keys: &[],
            style: Style::Colon,
            noun: "",
            limit: Limit { values: Values::All, noun: None },
            openflow10: None,
            openflow11: None,
            nicira: None,
            needs_openflow_11: false,
            writes: None,
            requires: &[],
            tags: Tags::Kept,
            mirroring: Mirroring::Unchanged,
            instruction: Instruction::ApplyActions,
            place: ActionSetPlace::None,
        }
    }

    /// Builds a row that describes everything about an action except its effect.
    pub(super) const fn plain(words: &'static [&'static str]) -> Self {
        Self { words, ..Self::own(words[0]) }
    }

    /// Sets the name in error texts, if it is not the first word.
    pub(super) const fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Sets the name of the argument in errors.
    pub(super) const fn argument(self, noun: &'static str) -> Self {
        Self { noun, ..self }
    }

    /// Names the arguments of an action that has several arguments.
    pub(super) const fn keys(self, keys: &'static [&'static str]) -> Self {
        Self { keys, ..self }
    }

    pub(super) const fn hexadecimal(self, digits: usize) -> Self {
        Self { style: Style::Hexadecimal(digits), ..self }
    }

    pub(super) const fn in_parentheses(self, expected: &'static str) -> Self {
        Self { style: Style::Parentheses(expected), ..self }
    }

    /// Limits the argument in rules and in messages.
    pub(super) const fn only(self, values: Values, noun: &'static str) -> Self {
        Self { limit: Limit { values, noun: Some(noun) }, ..self }
    }

    /// Limits the argument in messages.
    pub(super) const fn only_in_messages(self, values: Values) -> Self {
        Self { limit: Limit { values, noun: None }, ..self }
    }

    pub(super) const fn openflow10(self, number: u8) -> Self {
        Self { openflow10: Some(number), ..self }
    }

    pub(super) const fn openflow11(self, number: u8) -> Self {
        Self { openflow11: Some(number), ..self }
    }

    pub(super) const fn nicira(self, number: u8) -> Self {
        Self { nicira: Some(number), ..self }
    }

    pub(super) const fn needs_openflow_11(self) -> Self {
        Self { needs_openflow_11: true, ..self }
    }

    pub(super) const fn writes(self, field: Field) -> Self {
        Self { writes: Some(field), mirroring: Mirroring::IfWritten, ..self }
    }

    pub(super) const fn requires(self, protocols: &'static [Prerequisite]) -> Self {
        Self { requires: protocols, ..self }
    }

    pub(super) const fn tags(self, tags: Tags) -> Self {
        Self { tags, mirroring: Mirroring::Again, ..self }
    }

    pub(super) const fn mirrored_again(self) -> Self {
        Self { mirroring: Mirroring::Again, ..self }
    }

    pub(super) const fn instruction(self, instruction: Instruction) -> Self {
        Self { instruction, ..self }
    }

    pub(super) const fn place(self, place: ActionSetPlace) -> Self {
        Self { place, ..self }
    }

    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.words.is_empty()
    }

    /// Returns the plain action with this name in rules.
    #[must_use]
    pub fn named(word: &str) -> Option<&'static Self> {
        Self::all().iter().find(|row| row.words.contains(&word))
    }

    /// Returns the plain action with this action type in OpenFlow 1.0.
    #[must_use]
    pub fn of_openflow10(number: u16) -> Option<&'static Self> {
        static NUMBERS: Index = Index::new(Numbering::OpenFlow10);
        NUMBERS.row(number)
    }

    /// Returns the plain action with this action type in OpenFlow 1.1 and later.
    #[must_use]
    pub fn of_openflow11(number: u16) -> Option<&'static Self> {
        static NUMBERS: Index = Index::new(Numbering::OpenFlow11);
        NUMBERS.row(number)
    }

    /// Returns the plain action with this subtype in Open vSwitch's extension.
    #[must_use]
    pub fn of_nicira(number: u16) -> Option<&'static Self> {
        static NUMBERS: Index = Index::new(Numbering::Nicira);
        NUMBERS.row(number)
    }

    /// Returns the action with these arguments. Returns `None` if an argument is not a number, or
    /// is too large.
    #[must_use]
    pub fn action(&self, numbers: Numbers) -> Option<Action> {
        make(self.kind, numbers)
    }

    /// Returns the value that an argument gives to the written field.
    #[must_use]
    pub fn written_value(&self, number: u64) -> u128 {
        u128::from(match self.limit.values {
            Values::Bits(bits) => number >> bits.trailing_zeros(),
            _ => number,
        })
    }

    /// Returns the size of a plain action's message. `start` is the offset of the arguments.
    #[must_use]
    pub fn message_bytes(&self, start: usize) -> usize {
        let end = self
            .forms
            .iter()
            .fold(start, |end, form| end.next_multiple_of(form.alignment()) + form.bytes());
        end.next_multiple_of(8)
    }
}

#[derive(Clone, Copy)]
enum Numbering {
    OpenFlow10,
    OpenFlow11,
    Nicira,
}

/// The rows by their numbers in messages. An entry is the index of a row plus one; 0 means no row.
struct Index([u8; 256]);

impl Index {
    const fn new(numbering: Numbering) -> Self {
        let rows = Row::all();
        let mut index = [0; 256];
        let mut place = 0;
        while place < rows.len() {
            let row = &rows[place];
            place += 1;
            let number = match numbering {
                Numbering::OpenFlow10 => row.openflow10,
                Numbering::OpenFlow11 => row.openflow11,
                Numbering::Nicira => row.nicira,
            };
            if let Some(number) = number {
                assert!(index[number as usize] == 0, "two actions have the same number");
                index[number as usize] = place as u8;
            }
        }
        Self(index)
    }

    fn row(&self, number: u16) -> Option<&'static Row> {
        let place = *self.0.get(usize::from(number))?;
        Row::all().get(usize::from(place).checked_sub(1)?)
    }
}

/// The type of an action's argument. Types whose arguments are no numbers keep the defaults.
pub(super) trait Argument: Sized {
    const FORM: Form = Form::Own;

    fn number(&self) -> u64 {
        0
    }

    fn of(_number: u64) -> Option<Self> {
        None
    }
}

macro_rules! numbers {
    ($($type:ty => $form:ident;)*) => {$(
        impl Argument for $type {
            const FORM: Form = Form::$form;

            fn number(&self) -> u64 {
                u64::from(*self)
            }

            fn of(number: u64) -> Option<Self> {
                Self::try_from(number).ok()
            }
        }
    )*};
}

numbers! {
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
}

impl Argument for [u8; 6] {
    const FORM: Form = Form::Ethernet;

    fn number(&self) -> u64 {
        self.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn of(number: u64) -> Option<Self> {
        number.to_be_bytes().last_chunk().copied()
    }
}

impl Argument for Ipv4Addr {
    const FORM: Form = Form::Ipv4;

    fn number(&self) -> u64 {
        self.to_bits().into()
    }

    fn of(number: u64) -> Option<Self> {
        u32::try_from(number).ok().map(Self::from)
    }
}

impl Argument for bool {}
impl Argument for u128 {}
impl Argument for Field {}
impl Argument for PortNumber {}
impl Argument for Subfield {}
impl<T> Argument for Box<T> {}
impl<T> Argument for Option<T> {}
impl<T> Argument for Vec<T> {}

pub(super) fn numbers<const N: usize>(arguments: [u64; N]) -> Numbers {
    let mut numbers = [0; MOST_NUMBERS];
    for (place, argument) in numbers.iter_mut().zip(arguments) {
        *place = argument;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plain_action_can_be_made_from_its_row() {
        let plain = || Row::all().iter().filter(|row| row.is_plain());
        for row in plain() {
            assert!(!row.forms.contains(&Form::Own), "{row:?}");
            assert!(row.forms.len() <= MOST_NUMBERS, "{row:?}");
            assert!(row.forms.len() <= 1 || row.keys.len() == row.forms.len(), "{row:?}");
            let numbers = numbers([7, 9, 11, 13]);
            let action = row.action(numbers).expect("small numbers are arguments of any form");
            assert_eq!(action.row().name, row.name);
            assert_eq!(action.numbers()[..row.forms.len()], numbers[..row.forms.len()]);
            for word in row.words {
                let with_word = plain().filter(|row| row.words.contains(word)).count();
                assert_eq!(with_word, 1, "{word}");
            }
        }
    }

    #[test]
    fn a_number_in_a_message_leads_to_its_row() {
        let name = |row: Option<&'static Row>| row.map(|row| row.name);
        assert_eq!(name(Row::of_openflow10(4)), Some("mod_dl_src"));
        assert_eq!(name(Row::of_openflow11(4)), Some("mod_dl_dst"));
        assert_eq!(name(Row::of_nicira(4)), Some("set_queue"));
        assert_eq!(name(Row::of_nicira(0x0104)), None);
        assert_eq!(name(Row::of_openflow10(0)), None);
    }

    #[test]
    fn an_argument_that_is_too_large_makes_no_action() {
        let row = Row::named("mod_nw_ttl").expect("mod_nw_ttl is a plain action");
        assert_eq!(row.action(numbers([255])), Some(Action::SetIpTtl(255)));
        assert_eq!(row.action(numbers([256])), None);
    }
}
