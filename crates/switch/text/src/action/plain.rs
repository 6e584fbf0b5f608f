//! The texts of plain actions, which the table of actions describes.

use std::fmt::Write;
use std::net::Ipv4Addr;

use flow::action::{Action, Form, Numbers, Row, Style};

use super::print::close;
use crate::address::{print_ethernet, scan_ethernet, scan_ipv4};
use crate::error::{TextError, refuse};
use crate::number::{number_8, number_16, number_32, number_64};
use crate::token::KeyValues;

pub(super) fn parse(row: &Row, text: &str) -> Result<Action, TextError> {
    let mut numbers = Numbers::default();
    if !row.keys.is_empty() {
        for (key, value) in KeyValues::new(text) {
            let Some(place) = row.keys.iter().position(|known| *known == key) else {
                return Err(refuse!("invalid key '{key}' in '{}' argument", row.name));
            };
            numbers[place] = number(row.forms[place], value, key)?;
        }
    } else if let Some(form) = row.forms.first() {
        if let Style::Parentheses(expected) = row.style
            && text.is_empty()
        {
            return Err(refuse!("{}: expected {expected}.", row.name));
        }
        numbers[0] = number(*form, text, row.noun)?;
        if let Some(noun) = row.limit.noun
            && !row.limit.allows(numbers[0])
        {
            return Err(refuse!("{text}: not a valid {noun}"));
        }
    }
    row.action(numbers).ok_or_else(|| refuse!("{text}: not an argument of {}", row.name))
}

fn number(form: Form, text: &str, noun: &str) -> Result<u64, TextError> {
    Ok(match form {
        Form::U8 => number_8(text, noun)?.into(),
        Form::U16 => number_16(text, noun)?.into(),
        Form::U32 => number_32(text)?.into(),
        Form::U64 | Form::Own => number_64(text)?,
        Form::Ethernet => {
            scan_ethernet(text).ok_or_else(|| refuse!("invalid mac address {text}"))?.0
        }
        Form::Ipv4 => match scan_ipv4(text) {
            Some((address, "")) if text.parse::<Ipv4Addr>().is_ok() => address.into(),
            _ => return Err(refuse!("{text}: could not convert to IP address")),
        },
    })
}

pub(super) fn write(out: &mut String, row: &Row, numbers: Numbers) -> std::fmt::Result {
    out.push_str(row.words.first().unwrap_or(&row.name));
    if !row.keys.is_empty() {
        out.push('(');
        for ((key, form), number) in row.keys.iter().zip(row.forms).zip(numbers) {
            if number != 0 {
                write!(out, "{key}=")?;
                write_number(out, *form, number)?;
                out.push(',');
            }
        }
        return close(out);
    }
    let Some(form) = row.forms.first() else { return Ok(()) };
    let number = numbers[0];
    match row.style {
        Style::Hexadecimal(digits) => write!(out, ":0x{number:0digits$x}"),
        Style::Colon => {
            out.push(':');
            write_number(out, *form, number)
        }
        Style::Parentheses(_) => {
            out.push('(');
            write_number(out, *form, number)?;
            out.write_char(')')
        }
    }
}

fn write_number(out: &mut String, form: Form, number: u64) -> std::fmt::Result {
    match form {
        Form::Ethernet => {
            print_ethernet(out, number.into());
            Ok(())
        }
        Form::Ipv4 => write!(out, "{}", Ipv4Addr::from(number as u32)),
        _ => write!(out, "{number}"),
    }
}
