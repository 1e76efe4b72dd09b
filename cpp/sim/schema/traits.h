#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

namespace spillway::sim {

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_variant : std::false_type {};
template <class... T>
struct is_variant<std::variant<T...>> : std::true_type {};
template <class T>
struct is_shared : std::false_type {};
template <class T>
struct is_shared<std::shared_ptr<const T>> : std::true_type {};

}  // namespace spillway::sim
