#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "bindings/casters.h"
#include "sim/error.h"
#include "sim/schema/codec.h"
#include "sim/schema/type.h"
#include "sim/value.h"

namespace spillway::bindings {

/// A frozen configuration object of any class: a structure and the table of its type. Python
/// creates one class per table on first use, see `spillway.config.classes`.
struct Settings {
  const sim::TypeInfo* type = nullptr;
  std::shared_ptr<const void> object;

  /// Throws UsageError if `__init__` has not run.
  const sim::TypeInfo& info() const;
  const sim::StructType& structure() const { return info().structure(); }
  sim::Value encoded(sim::Purpose purpose = sim::Purpose::writing) const {
    return sim::encode(info(), object.get(), purpose);
  }
  /// Throws UsageError if it is of another type.
  template <class T>
  const T& as() const {
    if (&info() != &sim::type_of<T>()) refuse(sim::type_of<T>());
    return *static_cast<const T*>(object.get());
  }

  /// pybind11 allocates an object before its `__init__` runs, and lets it be used: zeros mean
  /// empty.
  static void* operator new(std::size_t size) { return std::memset(::operator new(size), 0, size); }
  static void operator delete(void* object) { ::operator delete(object); }

 private:
  [[noreturn]] void refuse(const sim::TypeInfo& wanted) const;
};

/// The settings as an object of their Python class.
py::object to_python(Settings settings);
template <class T>
py::object to_python_class(T value) {
  return to_python(Settings{&sim::type_of<T>(), std::make_shared<const T>(std::move(value))});
}

}  // namespace spillway::bindings
