#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/names.h"

namespace spillway::gateway {

/// Reports entries of a list that name the same tenant or class as an earlier one.
template <class Entry>
void check_unique_names(const std::vector<Entry>& entries, std::string Entry::* name,
                        std::string_view field, const std::string& path,
                        std::vector<sim::Violation>& out) {
  const sim::NameIndex index(entries, name);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (index.of(entries[i].*name) == i) continue;
    out.push_back({sim::join_path(sim::index_path(path, i), field), "'" + entries[i].*name + "'",
                   "must be unique"});
  }
}

}  // namespace spillway::gateway
