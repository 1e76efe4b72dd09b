#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::cluster {

class Inspection;

/// A rule that concerns several parts of a simulation. `check` reports what breaks it.
struct Rule {
  std::string_view name;
  /// What it may reject, e.g. `instances[].plant`: the plant of any entry, and all below it.
  std::array<std::string_view, 13> paths;
  void (*check)(Inspection& simulation);
};

/// All rules, in the order in which they report.
std::span<const Rule> rules();

/// Reports what breaks the given rules. `path`: of the simulation.
void check_rules(std::span<const Rule> rules, const Simulation& simulation, const std::string& path,
                 std::vector<sim::Violation>& out);

}  // namespace spillway::cluster
