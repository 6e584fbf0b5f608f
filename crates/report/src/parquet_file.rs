//! `samples.parquet`, through Parquet's own column writers, because Arrow would triple the build
//! time.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};

use results::{Axes, Sample, Samples, Series};

use crate::{ReportError, axis};

/// Encodes `samples.parquet`: the samples, then every value of every series as a row with a time.
/// Each axis also has its own column, `axis_loss` for example.
pub fn encode_samples(samples: &Samples, series: &[Series]) -> Result<Vec<u8>, ReportError> {
    let rows = rows(samples, series);
    let axes = axis_names(&rows);
    write(&samples.lab, &rows, &axes).map_err(|error| ReportError::EncodeSamples(error.to_string()))
}

/// Reads a `samples.parquet`. Rows with a time are values of series.
pub fn read_samples(file: &Path) -> Result<Samples, ReportError> {
    let opened = host::open_regular_file(file)
        .map_err(|source| ReportError::Read { file: file.to_owned(), source })?;
    let malformed =
        |reason: String| ReportError::MalformedSamples { file: file.to_owned(), reason };
    let reader = SerializedFileReader::new(opened).map_err(|error| malformed(error.to_string()))?;
    let rows = reader.get_row_iter(None).map_err(|error| malformed(error.to_string()))?;
    let mut samples = Samples::default();
    for row in rows {
        let row = row.map_err(|error| malformed(error.to_string()))?;
        let (lab, sample) = sample(&row).map_err(malformed)?;
        if samples.rows.is_empty() {
            samples.lab = lab;
        }
        samples.rows.push(sample);
    }
    Ok(samples)
}

struct Tidy<'a> {
    system: &'a str,
    axes: &'a Axes,
    repeat: u32,
    block: u32,
    time_s: Option<f64>,
    metric: Arc<str>,
    value: f64,
    unit: &'a str,
    valid: bool,
}

fn rows<'a>(samples: &'a Samples, series: &'a [Series]) -> Vec<Tidy<'a>> {
    let whole = samples.rows.iter().map(|sample| Tidy {
        system: &sample.system,
        axes: &sample.axes,
        repeat: sample.repeat,
        block: sample.block,
        time_s: sample.time_s,
        metric: sample.metric.as_str().into(),
        value: sample.value,
        unit: &sample.unit,
        valid: sample.valid,
    });
    let timed = series.iter().flat_map(|one| {
        one.lines.iter().flat_map(move |line| {
            let metric: Arc<str> = format!("{}.{}", one.name, line.name).into();
            one.time_s.iter().zip(&line.values).filter_map(move |(time, value)| {
                Some(Tidy {
                    system: &one.system,
                    axes: &one.axes,
                    repeat: one.repeat,
                    block: one.block,
                    time_s: Some(*time),
                    metric: metric.clone(),
                    value: (*value)?,
                    unit: &line.unit,
                    valid: one.valid,
                })
            })
        })
    });
    whole.chain(timed).collect()
}

fn axis_names(rows: &[Tidy<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.axes.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn write(lab: &str, rows: &[Tidy<'_>], axes: &[String]) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema(axes)?, Arc::new(properties))?;
    for rows in rows.chunks(ROWS_A_GROUP) {
        let mut group = writer.next_row_group()?;
        text(&mut group, rows, |_| lab)?;
        text(&mut group, rows, |row| row.system)?;
        let points: Vec<String> = rows.iter().map(|row| axis::describe(row.axes)).collect();
        let points: Vec<ByteArray> = points.iter().map(|point| point.as_str().into()).collect();
        column::<ByteArrayType>(&mut group, &points, None)?;
        column::<Int32Type>(&mut group, &ints(rows, |row| row.repeat), None)?;
        column::<Int32Type>(&mut group, &ints(rows, |row| row.block), None)?;
        optional::<DoubleType>(&mut group, rows.iter().map(|row| row.time_s))?;
        text(&mut group, rows, |row| &row.metric)?;
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        column::<DoubleType>(&mut group, &values, None)?;
        text(&mut group, rows, |row| row.unit)?;
        let valid: Vec<bool> = rows.iter().map(|row| row.valid).collect();
        column::<BoolType>(&mut group, &valid, None)?;
        for name in axes {
            let values = rows.iter().map(|row| Some(row.axes.get(name)?.as_str().into()));
            optional::<ByteArrayType>(&mut group, values)?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn schema(axes: &[String]) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for (name, physical, repetition) in COLUMNS {
        fields.push(field(name, *physical, *repetition)?);
    }
    for name in axes {
        let name = format!("{AXIS_PREFIX}{name}");
        fields.push(field(&name, Physical::BYTE_ARRAY, Repetition::OPTIONAL)?);
    }
    Ok(Arc::new(Type::group_type_builder("sample").with_fields(fields).build()?))
}

fn field(name: &str, physical: Physical, repetition: Repetition) -> Result<TypePtr, ParquetError> {
    let logical = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
    let builder = Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical);
    Ok(Arc::new(builder.build()?))
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn text<'a>(
    group: &mut Group<'_>,
    rows: &'a [Tidy<'a>],
    of: impl Fn(&'a Tidy<'a>) -> &'a str,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = rows.iter().map(|row| of(row).into()).collect();
    column::<ByteArrayType>(group, &values, None)
}

fn ints(rows: &[Tidy<'_>], of: impl Fn(&Tidy<'_>) -> u32) -> Vec<i32> {
    rows.iter().map(|row| i32::try_from(of(row)).unwrap_or(i32::MAX)).collect()
}

fn optional<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut present = Vec::new();
    let levels: Vec<i16> = values
        .map(|value| {
            let level = i16::from(value.is_some());
            present.extend(value);
            level
        })
        .collect();
    column::<T>(group, &present, Some(&levels))
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn sample(row: &Row) -> Result<(String, Sample), String> {
    let mut lab = None;
    let mut sample = Sample {
        system: String::new(),
        axes: Axes::new(),
        repeat: 0,
        block: 0,
        time_s: None,
        metric: String::new(),
        value: f64::NAN,
        unit: String::new(),
        valid: true,
    };
    let mut missing = vec!["system", "metric", "value"];
    for (name, field) in row.get_column_iter() {
        missing.retain(|wanted| wanted != name);
        match (name.as_str(), field) {
            ("lab", Field::Str(text)) => lab = Some(text.clone()),
            ("system", Field::Str(text)) => sample.system.clone_from(text),
            ("metric", Field::Str(text)) => sample.metric.clone_from(text),
            ("unit", Field::Str(text)) => sample.unit.clone_from(text),
            ("repeat", Field::Int(number)) => sample.repeat = number.unsigned_abs(),
            ("block", Field::Int(number)) => sample.block = number.unsigned_abs(),
            ("time_s", Field::Double(seconds)) => sample.time_s = Some(*seconds),
            ("value", Field::Double(number)) => sample.value = *number,
            ("valid", Field::Bool(valid)) => sample.valid = *valid,
            (name, Field::Str(text)) if name.starts_with(AXIS_PREFIX) => {
                sample.axes.insert(name[AXIS_PREFIX.len()..].to_owned(), text.clone());
            }
            ("system" | "metric" | "value", other) => {
                return Err(format!("column {name} holds {other} where a sample has its {name}"));
            }
            // A column from a newer writer is ignored.
            _ => {}
        }
    }
    match missing.first() {
        Some(name) => Err(format!("it has no column {name}")),
        None => Ok((lab.unwrap_or_default(), sample)),
    }
}

const COLUMNS: &[(&str, Physical, Repetition)] = &[
    ("lab", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("system", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("axes", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("repeat", Physical::INT32, Repetition::REQUIRED),
    ("block", Physical::INT32, Repetition::REQUIRED),
    ("time_s", Physical::DOUBLE, Repetition::OPTIONAL),
    ("metric", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("value", Physical::DOUBLE, Repetition::REQUIRED),
    ("unit", Physical::BYTE_ARRAY, Repetition::REQUIRED),
    ("valid", Physical::BOOLEAN, Repetition::REQUIRED),
];
const AXIS_PREFIX: &str = "axis_";
const ROWS_A_GROUP: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Line, Shape};

    #[test]
    fn samples_and_series_are_written_and_read() {
        let mut samples = Samples::new("x");
        samples.rows.push(one("a", &[("loss", "1%")], None, 57.1));
        samples.rows.push(one("b", &[("rtt", "1ms")], Some(0.5), 3.0));
        let series = Series {
            name: "cpu".to_owned(),
            system: "a".to_owned(),
            axes: Axes::new(),
            repeat: 2,
            block: 1,
            valid: true,
            shape: Shape::Lines,
            time_s: vec![0.0, 0.1],
            lines: vec![Line {
                name: "cpu0".to_owned(),
                unit: "%".to_owned(),
                values: vec![Some(1.0), None],
            }],
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("samples.parquet");
        std::fs::write(&file, encode_samples(&samples, &[series]).unwrap()).unwrap();
        let read = read_samples(&file).unwrap();
        assert_eq!(read.lab, "x");
        assert_eq!(read.rows[..2], samples.rows);
        assert_eq!(read.rows.len(), 3);
        assert_eq!((read.rows[2].metric.as_str(), read.rows[2].repeat), ("cpu.cpu0", 2));
    }

    #[test]
    fn an_empty_set_of_samples_is_written_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("samples.parquet");
        std::fs::write(&file, encode_samples(&Samples::new("x"), &[]).unwrap()).unwrap();
        assert!(read_samples(&file).unwrap().rows.is_empty());
    }

    #[test]
    fn an_invalid_file_is_reported_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("samples.parquet");
        std::fs::write(&file, "no such thing").unwrap();
        let message = read_samples(&file).unwrap_err().to_string();
        assert!(message.contains("samples.parquet"), "{message}");
    }

    fn one(system: &str, axes: &[(&str, &str)], time_s: Option<f64>, value: f64) -> Sample {
        Sample {
            system: system.to_owned(),
            axes: axes.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            repeat: 1,
            block: 3,
            time_s,
            metric: "goodput_mbit_s".to_owned(),
            value,
            unit: "Mbit/s".to_owned(),
            valid: true,
        }
    }
}
