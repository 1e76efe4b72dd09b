#pragma once

#include <cstddef>
#include <string_view>

namespace spillway::sim {

/// Specialize with `static constexpr std::array names` to give an enum (0, 1, …) its written form.
template <class E>
struct EnumNames;

/// The written form of a value.
template <class E>
constexpr std::string_view name_of(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

}  // namespace spillway::sim
