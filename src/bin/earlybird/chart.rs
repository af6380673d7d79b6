//! Curves as SVG: what `simulate` computes and `bench` measures.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Points of named curves, and what they are drawn over.
pub struct Chart {
    pub title: String,
    /// x is a number of bytes and its axis logarithmic.
    pub bytes: bool,
    pub x_name: &'static str,
    pub y_name: &'static str,
    /// Curve, x, y.
    pub points: Vec<(String, f64, f64)>,
}

impl Chart {
    /// Names of the curves, in the order of their first points.
    fn series(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (series, ..) in &self.points {
            if !names.contains(&series.as_str()) {
                names.push(series);
            }
        }
        names
    }
}

const SIZE: (u32, u32) = (1240, 640);
/// Width of the curves; the rest is for their names.
const CURVES: u32 = 920;
/// Colours that stay apart for most eyes (Okabe and Ito), then darker again.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
    RGBColor(120, 80, 160),
    RGBColor(150, 30, 30),
    RGBColor(110, 130, 20),
    RGBColor(0, 60, 110),
    RGBColor(240, 140, 130),
];

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = Box<dyn std::error::Error>;

/// The picture. An error if there is nothing to draw.
pub fn svg(chart: &Chart) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (root, names) = root.split_horizontally(CURVES);
        key(&names, chart)?;
        let (low, high) = range(chart.points.iter().map(|p| p.2)).ok_or("no point has a time above 0")?;
        if chart.bytes {
            // a vector of no bytes stands at half a byte
            let (first, last) = range(chart.points.iter().map(|p| p.1.max(0.5))).unwrap_or((1.0, 2.0));
            times(&root, chart, (first * 0.8..last * 1.25).log_scale().base(2.0), low, high)?;
        } else {
            let (first, last) = chart.points.iter().map(|p| p.1).fold((f64::INFINITY, 0.0), ends);
            let room = ((last - first) * 0.02).max(0.1);
            times(&root, chart, first - room..last + room, low, high)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn ends(so_far: (f64, f64), x: f64) -> (f64, f64) {
    (so_far.0.min(x), so_far.1.max(x))
}

/// A logarithmic axis of times, or an even one if they lie close together.
fn times<X>(root: &Drawing, chart: &Chart, x: X, low: f64, high: f64) -> Result<(), Failure>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    match high / low > 10.0 {
        true => curves(root, chart, x, (low * 0.8..high * 1.25).log_scale()),
        false => curves(root, chart, x, low * 0.9..high * 1.05),
    }
}

/// Smallest and largest of the positive values.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let positive = values.filter(|value| *value > 0.0);
    positive
        .fold(None, |ends: Option<(f64, f64)>, v| Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v)))))
}

fn curves<X, Y>(root: &Drawing, chart: &Chart, x: X, y: Y) -> Result<(), Failure>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut drawn = ChartBuilder::on(root)
        .caption(&chart.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(84)
        .build_cartesian_2d(x, y)?;
    let bytes = chart.bytes;
    drawn
        .configure_mesh()
        .x_desc(chart.x_name)
        .y_desc(chart.y_name)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(14)
        .x_label_formatter(&|x| if bytes { in_bytes(*x) } else { format!("{x}") })
        .y_label_formatter(&|y| format!("{y}"))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (i, name) in chart.series().into_iter().enumerate() {
        let of_curve = chart.points.iter().filter(|(series, _, y)| series == name && *y > 0.0);
        let points: Vec<(f64, f64)> = of_curve.map(|(_, x, y)| (if bytes { x.max(0.5) } else { *x }, *y)).collect();
        let style = style(i);
        drawn.draw_series(std::iter::once(PathElement::new(points.clone(), style)))?;
        let size = if points.len() > 40 { 2 } else { 3 };
        drawn.draw_series(points.iter().map(|&at| Circle::new(at, size, style.color.filled())))?;
    }
    Ok(())
}

/// Later curves are thinner, so that one that lies on another is seen.
fn style(curve: usize) -> ShapeStyle {
    COLOURS[curve % COLOURS.len()].stroke_width(if curve == 0 { 5 } else { 2 })
}

/// The names of the curves, beside them.
fn key(area: &Drawing, chart: &Chart) -> Result<(), Failure> {
    for (i, name) in chart.series().into_iter().enumerate() {
        let y = 60 + 24 * i as i32;
        area.draw(&PathElement::new(vec![(4, y), (32, y)], style(i)))?;
        area.draw(&Text::new(name, (40, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// A number of bytes as users write it.
fn in_bytes(bytes: f64) -> String {
    for (name, unit) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        let unit = f64::from(1u32 << unit);
        if bytes >= unit {
            return format!("{}{name}", (bytes / unit * 100.0).round() / 100.0);
        }
    }
    format!("{bytes}")
}
