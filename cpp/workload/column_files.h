#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workload/requests.h"

namespace spillway::workload {

/// Columns of requests in files instead of in memory, for runs that keep requests only while they
/// are in the system. Prompts share no segments, and requests have no names.
///
/// The files stay open, and may be removed from their folder, as long as this exists.
class ColumnFiles {
 public:
  /// Of each row, in files of this order: the arrival in nanoseconds (int64), input and output
  /// tokens (int32), tenant and class (uint16), as the machine stores them. Throws sim::ConfigError
  /// if a file cannot be opened or is not of this size.
  ColumnFiles(const std::array<std::string, 5>& paths, std::int64_t rows);
  ~ColumnFiles();
  ColumnFiles(const ColumnFiles&) = delete;
  ColumnFiles& operator=(const ColumnFiles&) = delete;

  std::int64_t rows() const { return rows_; }
  /// Reads some rows, whatever other threads read. Throws sim::ConfigError if that fails.
  void read(std::int64_t first, std::int64_t count, Requests& into) const;

 private:
  std::array<int, 5> files_{-1, -1, -1, -1, -1};
  std::int64_t rows_;
};

/// The requests of the files, a part at a time. `names` has their tenants and classes.
std::unique_ptr<ArrivalStream> stream(std::shared_ptr<const Requests> names,
                                      std::shared_ptr<const ColumnFiles> files);

}  // namespace spillway::workload
