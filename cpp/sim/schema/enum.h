#pragma once

#include <cstddef>
#include <string_view>

namespace spillway::sim {

/// Specialize with `static constexpr std::array names` to give an enum (0, 1, …) its written form.
/// What a value was called in an earlier version is still read where `static constexpr std::array
/// former` pairs that name with the value.
template <class E>
struct EnumNames;

/// How a value is written.
template <class E>
constexpr std::string_view name_of(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

}  // namespace spillway::sim
