#pragma once

#include <string>

#include "bindings/casters.h"
#include "sim/value.h"

namespace spillway::bindings {

/// A Python object as a neutral value: None, bool, int, float, str, sequences, mappings, NumPy
/// scalars, and configuration objects, which pass their attachments along. Anything else is a
/// ConfigError, as is text that is not valid Unicode; `path` is the path of the value in the
/// settings.
sim::Value to_value(py::handle object, const std::string& path = "");

/// The key of the mapping at `path`, which must be valid text, or ConfigError.
std::string key_of(py::handle object, const std::string& path = "");

/// The value as plain Python objects; lists become lists, maps dicts. Attachments are omitted.
py::object to_python(const sim::Value& value);

}  // namespace spillway::bindings
