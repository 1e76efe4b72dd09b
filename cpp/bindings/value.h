#pragma once

#include <string>

#include "bindings/casters.h"
#include "sim/value.h"

namespace spillway::bindings {

/// A Python object as a neutral value: None, bool, int, float, str, sequences, mappings, NumPy
/// scalars, and bound configuration objects, which pass their attachments along. Anything else is a
/// TypeError.
sim::Value to_value(py::handle object);

/// A str as UTF-8; TypeError for anything else, UnicodeEncodeError for text that has no such form.
std::string text_of(py::handle object);

/// The value as plain Python objects; lists become lists, maps dicts. Attachments are left out.
py::object to_python(const sim::Value& value);

}  // namespace spillway::bindings
