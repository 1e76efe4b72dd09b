#pragma once

#include <memory>
#include <string_view>

#include "router/ties.h"

namespace spillway::router {

class Picker;

/// The highest score.
struct Best {
  Ties ties = Ties::first;

  static constexpr std::string_view kind = "best", type_name = "Best";
  static constexpr std::string_view doc = "The instance with the highest score.";
  static void fields(auto field) {
    field("ties", &Best::ties,
          "Choice among instances with the same score; random draws only if there are several.");
  }
  bool draws() const { return ties == Ties::random; }
};

std::unique_ptr<Picker> make(const Best& config);

}  // namespace spillway::router
