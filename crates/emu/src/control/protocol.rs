use crate::{LinkReport, Settings};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    Show,
    Set {
        #[serde(default)]
        both: Box<Settings>,
        #[serde(default)]
        ab: Box<Settings>,
        #[serde(default)]
        ba: Box<Settings>,
    },
    Down,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    Link(Box<LinkReport>),
    Done(String),
    Error(String),
}
