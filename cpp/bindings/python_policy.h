#pragma once

#include <memory>

#include "bindings/casters.h"
#include "sim/value.h"

namespace spillway::bindings {

/// The factory of policies in a `Factory` of Python; null: the object is something else.
std::shared_ptr<const sim::Attachment> factory_in(py::handle object);

}  // namespace spillway::bindings
