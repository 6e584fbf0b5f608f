//! What the report looks like, from example data that no machine measured.

mod drawings;
mod example_data;
mod page;
mod text;
