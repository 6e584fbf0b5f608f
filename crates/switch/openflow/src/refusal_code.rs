use flow::request::Refusal;

use super::Version;
use super::message::{Header, begin_message, end_message};
use super::octets::Put;

/// The type of request that is refused. Some error codes depend on this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Other,
    Flow,
    Group,
    Meter,
    Port,
    Table,
}

/// The type and code of an error message, by the organization that defined them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Standard(u16, u16),
    /// Nicira's codes in OpenFlow 1.0 and 1.1.
    Nicira(u16, u16),
    /// Nicira's codes in later versions.
    NiciraLater(u16),
    /// Codes of ONF's extension of OpenFlow 1.3.
    Onf(u16),
}

impl Code {
    pub(super) fn of(refusal: Refusal, subject: Subject, version: Version) -> Self {
        if version == Version::V10 {
            Self::v10(refusal, subject)
        } else {
            Self::later(refusal, subject, version)
        }
    }

    fn v10(refusal: Refusal, subject: Subject) -> Self {
        use Code::{Nicira, Standard};
        match refusal {
            Refusal::BadCommand if subject == Subject::Group => Nicira(6, 11),
            Refusal::BadCommand => Standard(3, 4),
            Refusal::BadTable | Refusal::BadInstructionTable => Nicira(1, 512),
            Refusal::TableFull => Standard(3, 0),
            Refusal::Overlap => Standard(3, 1),
            Refusal::NotPermitted if subject == Subject::Flow => Standard(3, 2),
            Refusal::NotPermitted | Refusal::IsSlave => Standard(1, 5),
            Refusal::BadFlags => Nicira(3, 258),
            Refusal::BadTimeout => Standard(3, 3),
            Refusal::UnknownBuffer => Standard(1, 8),
            Refusal::BadPrerequisite => Nicira(1, 260),
            Refusal::BadMatchField => Nicira(0, 263),
            Refusal::BadMatchMask => Nicira(1, 259),
            Refusal::BadMatchValue => Nicira(1, 258),
            Refusal::BadMatchLength => Nicira(1, 256),
            Refusal::DuplicateField => Nicira(1, 261),
            Refusal::InconsistentMatch => Nicira(1, 522),
            Refusal::BadSetField => Nicira(1, 523),
            Refusal::BadOutGroup => Nicira(2, 9),
            Refusal::BadInstruction => Nicira(2, 257),
            Refusal::GroupExists => Nicira(6, 0),
            Refusal::UnknownGroup => Nicira(6, 8),
            Refusal::BadGroup => Nicira(6, 1),
            Refusal::GroupLoop => Nicira(6, 7),
            Refusal::UnknownBucket => Nicira(6, 15),
            Refusal::BucketExists => Nicira(6, 16),
            Refusal::BadRole => Nicira(1, 513),
            Refusal::BadPort if subject == Subject::Port => Standard(4, 0),
            Refusal::BadPort => Nicira(1, 514),
            Refusal::BadHardwareAddress => Standard(4, 1),
            Refusal::BadQueuePort => Standard(5, 0),
            Refusal::BadQueue => Standard(5, 1),
            Refusal::MonitorExists => Nicira(1, 517),
            Refusal::BadMonitorFlags => Nicira(1, 518),
            Refusal::UnknownMonitor => Nicira(1, 519),
            _ => Self::shared(refusal),
        }
    }

    fn later(refusal: Refusal, subject: Subject, version: Version) -> Self {
        use Code::{Nicira, Standard};
        if version == Version::V11 {
            // Codes that exist since OpenFlow 1.2.
            match refusal {
                Refusal::BadTable if subject != Subject::Table => return Nicira(1, 512),
                Refusal::BadPort if subject != Subject::Port => return Nicira(1, 514),
                Refusal::BadFlags if subject != Subject::Meter => return Nicira(3, 258),
                Refusal::BadMatchMask => return Nicira(1, 259),
                Refusal::BadPrerequisite => return Nicira(1, 260),
                Refusal::DuplicateField => return Nicira(1, 261),
                Refusal::BadSetField => return Nicira(1, 523),
                Refusal::IsSlave => return Standard(1, 5),
                Refusal::BadRole => return Nicira(1, 513),
                Refusal::MonitorExists => return Nicira(1, 517),
                Refusal::BadMonitorFlags => return Nicira(1, 518),
                Refusal::UnknownMonitor => return Nicira(1, 519),
                _ => {}
            }
        }
        match refusal {
            Refusal::BadCommand => match subject {
                Subject::Group => Standard(6, 11),
                Subject::Meter => Standard(12, 4),
                _ => Standard(5, 6),
            },
            Refusal::BadTable if subject == Subject::Table => Standard(8, 0),
            Refusal::BadTable => Standard(1, 9),
            Refusal::ReservedTable if subject == Subject::Table => Standard(8, 2),
            Refusal::BadTableFeature => Standard(13, 0),
            Refusal::FixedTableName => Standard(13, 5),
            Refusal::TableFull => Standard(5, 1),
            Refusal::Overlap => Standard(5, 3),
            Refusal::NotPermitted => match subject {
                Subject::Flow => Standard(5, 4),
                Subject::Group => Standard(6, 14),
                _ => Standard(1, 5),
            },
            Refusal::IsSlave => Standard(1, 10),
            Refusal::BadFlags if subject == Subject::Meter => Standard(12, 5),
            Refusal::BadFlags => Standard(5, 7),
            Refusal::BadTimeout => Standard(5, 5),
            Refusal::UnknownBuffer => Standard(1, 8),
            Refusal::BadPrerequisite => Standard(4, 9),
            Refusal::BadMatchField => Standard(4, 6),
            Refusal::BadMatchMask => Standard(4, 8),
            Refusal::BadMatchValue => Standard(4, 7),
            Refusal::BadMatchLength => Standard(4, 1),
            Refusal::DuplicateField => Standard(4, 10),
            Refusal::InconsistentMatch => Standard(2, 10),
            Refusal::BadSetField => Standard(2, 13),
            Refusal::BadOutGroup => Standard(2, 9),
            Refusal::BadInstruction => Standard(3, 0),
            Refusal::BadInstructionTable => Standard(3, 2),
            Refusal::GroupExists => Standard(6, 0),
            Refusal::UnknownGroup => Standard(6, 8),
            Refusal::BadGroup => Standard(6, 1),
            Refusal::GroupLoop => Standard(6, 7),
            Refusal::UnknownBucket => Standard(6, 15),
            Refusal::BucketExists => Standard(6, 16),
            Refusal::StaleRole => Standard(11, 0),
            Refusal::BadRole => Standard(11, 2),
            Refusal::MeterExists => Standard(12, 1),
            Refusal::UnknownMeter => Standard(12, 3),
            Refusal::BadMeter => Standard(12, 2),
            Refusal::BadPort if subject == Subject::Port => Standard(7, 0),
            Refusal::BadPort => Standard(1, 11),
            Refusal::BadHardwareAddress => Standard(7, 1),
            Refusal::BadQueuePort => Standard(9, 0),
            Refusal::BadQueue => Standard(9, 1),
            Refusal::MonitorExists if version <= Version::V13 => Self::NiciraLater(6),
            Refusal::MonitorExists => Standard(16, 1),
            Refusal::BadMonitorFlags if version <= Version::V13 => Self::NiciraLater(7),
            Refusal::BadMonitorFlags => Standard(16, 5),
            Refusal::UnknownMonitor if version <= Version::V13 => Self::NiciraLater(8),
            Refusal::UnknownMonitor => Standard(16, 3),
            // Versions before OpenFlow 1.4 have no command, because they have separate messages to
            // begin and to end a monitor.
            Refusal::BadMonitorCommand => Standard(16, 4),
            Refusal::BadPropertyLength if version == Version::V13 => Standard(13, 3),
            Refusal::BadPropertyLength if version >= Version::V14 => Standard(14, 1),
            Refusal::BadPropertyValue => Standard(14, 2),
            Refusal::BadEventMask if version >= Version::V14 => Standard(15, 0),
            Refusal::UnknownEvent if version >= Version::V14 => Standard(15, 1),
            Refusal::BadBundle => Self::bundle(2, version),
            Refusal::BundleClosed => Self::bundle(4, version),
            Refusal::TooManyBundles => Self::bundle(5, version),
            Refusal::BundleTooLarge => Self::bundle(12, version),
            Refusal::BadBundleType => Self::bundle(6, version),
            Refusal::BadBundleFlags => Self::bundle(7, version),
            Refusal::BadBundleNumber => Self::bundle(9, version),
            Refusal::BadBundleMessage => Self::bundle(10, version),
            _ => Self::shared(refusal),
        }
    }

    fn shared(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadVersion => Code::Standard(1, 0),
            Refusal::BadType => Code::Standard(1, 1),
            Refusal::BadStatistics => Code::Standard(1, 2),
            Refusal::BadExperimenter => Code::Standard(1, 3),
            Refusal::BadLength | Refusal::BadPropertyLength => Code::Standard(1, 6),
            Refusal::TooManyParts => Code::Standard(1, 13),
            Refusal::BadActionType => Code::Standard(2, 0),
            Refusal::BadActionLength => Code::Standard(2, 1),
            Refusal::BadOutPort => Code::Standard(2, 4),
            Refusal::BadActionArgument => Code::Standard(2, 5),
            // The version has no code for this refusal, so the general code is used.
            _ => Code::Standard(1, 5),
        }
    }

    /// Returns the code for a failure of a bundle. `code`: the number in OpenFlow 1.4.
    pub(super) fn bundle(code: u16, version: Version) -> Self {
        if version == Version::V13 { Code::Onf(2300 + code) } else { Code::Standard(17, code) }
    }
}

/// Writes an error message, which repeats the refused request. OpenFlow requires at least the
/// request's first 64 bytes; the whole request is easier to decode.
pub(super) fn encode_error(
    version: Version,
    xid: u32,
    code: Code,
    request: &[u8],
    out: &mut Vec<u8>,
) {
    let start = begin_message(Header { version, kind: 1, xid }, out);
    match code {
        Code::Standard(kind, code) => {
            out.put_u16(kind);
            out.put_u16(code);
        }
        Code::Nicira(kind, code) => {
            out.put_u16(0xb0c2);
            out.put_u16(0);
            out.put_u32(0x2320);
            out.put_u16(kind);
            out.put_u16(code);
        }
        Code::NiciraLater(code) => {
            out.put_u16(0xffff);
            out.put_u16(code);
            out.put_u32(0x2320);
        }
        Code::Onf(code) => {
            out.put_u16(0xffff);
            out.put_u16(code);
            out.put_u32(0x4f4e_4600);
        }
    }
    out.extend_from_slice(&request[..request.len().min(MOST_REPEATED)]);
    end_message(start, out);
}

/// Maximum number of bytes of a request that fit into an error message.
const MOST_REPEATED: usize = 0xffff - 24;
