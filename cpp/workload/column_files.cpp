#include "workload/column_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "sim/error.h"

namespace spillway::workload {

namespace {

constexpr std::int64_t kRowsAtOnce = 1 << 16;

[[noreturn]] void fail(const std::string& what) {
  throw sim::ConfigError({{"trace", what, "cannot be read as columns of requests"}});
}

template <class T>
void read_column(int file, std::int64_t first, std::int64_t count, std::vector<T>& into) {
  into.resize(static_cast<std::size_t>(count));
  char* out = reinterpret_cast<char*>(into.data());
  std::size_t left = into.size() * sizeof(T);
  auto at = static_cast<off_t>(static_cast<std::size_t>(first) * sizeof(T));
  while (left > 0) {
    const ssize_t got = ::pread(file, out, left, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(got < 0 ? std::strerror(errno) : "a file that has become shorter");
    out += got;
    at += got;
    left -= static_cast<std::size_t>(got);
  }
}

class FileStream final : public ArrivalStream {
 public:
  FileStream(std::shared_ptr<const Requests> names, std::shared_ptr<const ColumnFiles> files)
      : names_(std::move(names)), files_(std::move(files)) {}

  std::optional<Arrival> next() override {
    if (row_ == part_.size() && !read_on()) return std::nullopt;
    const std::size_t row = row_++;
    return Arrival{part_.arrival[row], part_.input_tokens[row], part_.output_tokens[row],
                   part_.tenant[row],  part_.slo_class[row],    {}};
  }
  const std::vector<std::string>& tenants() const override { return names_->tenants; }
  const std::vector<std::string>& slo_classes() const override { return names_->slo_classes; }
  bool shares_segments() const override { return false; }

 private:
  bool read_on() {
    const std::int64_t count = std::min(kRowsAtOnce, files_->rows() - next_);
    if (count == 0) return false;
    files_->read(next_, count, part_);
    next_ += count;
    row_ = 0;
    return true;
  }

  std::shared_ptr<const Requests> names_;
  std::shared_ptr<const ColumnFiles> files_;
  Requests part_;
  std::size_t row_ = 0;
  std::int64_t next_ = 0;
};

}  // namespace

ColumnFiles::ColumnFiles(const std::array<std::string, 5>& paths, std::int64_t rows) : rows_(rows) {
  constexpr std::array<std::int64_t, 5> kBytes{8, 4, 4, 2, 2};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    files_[i] = ::open(paths[i].c_str(), O_RDONLY | O_CLOEXEC);
    if (files_[i] >= 0 && ::lseek(files_[i], 0, SEEK_END) == kBytes[i] * rows) continue;
    for (const int file : files_) {
      if (file >= 0) ::close(file);
    }
    fail(paths[i]);
  }
}

ColumnFiles::~ColumnFiles() {
  for (const int file : files_) ::close(file);
}

void ColumnFiles::read(std::int64_t first, std::int64_t count, Requests& into) const {
  static_assert(sizeof(sim::Time) == sizeof(std::int64_t));
  read_column(files_[0], first, count, into.arrival);
  read_column(files_[1], first, count, into.input_tokens);
  read_column(files_[2], first, count, into.output_tokens);
  read_column(files_[3], first, count, into.tenant);
  read_column(files_[4], first, count, into.slo_class);
}

std::unique_ptr<ArrivalStream> stream(std::shared_ptr<const Requests> names,
                                      std::shared_ptr<const ColumnFiles> files) {
  return std::make_unique<FileStream>(std::move(names), std::move(files));
}

}  // namespace spillway::workload
