#include "workload/synthetic.h"

#include <algorithm>
#include <limits>

namespace spillway::workload {

namespace {

constexpr std::int64_t kDefaultCount = 1000;
constexpr std::int64_t kUnboundedCount = std::numeric_limits<std::int64_t>::max();

struct Row {
  sim::Time arrival;
  std::uint32_t client;
  std::int32_t input_tokens;
  std::int32_t output_tokens;
};

std::unique_ptr<LengthDistribution> make_lengths(const Lengths& lengths) {
  return std::visit([](const auto& config) { return make(config); }, lengths);
}

// The client's requests up to `limit`, in order of arrival.
void append_rows(const Client& client, std::uint32_t index, double rate_per_s, std::size_t count,
                 sim::Time limit, std::uint64_t seed, std::int64_t quantum_ns,
                 std::vector<Row>& rows) {
  const auto arrivals =
      std::visit([&](const auto& config) { return make(config, rate_per_s); }, client.arrivals);
  const auto input = make_lengths(client.input_tokens);
  const auto output = make_lengths(client.output_tokens);
  double now_s = 0;
  for (std::size_t ordinal = 0; ordinal < count; ++ordinal) {
    sim::Draws gap(seed, sim::Stream::arrivals, ordinal, index);
    now_s += arrivals->gap_s(gap);
    if (!(now_s < sim::to_seconds(limit))) return;
    sim::Draws in(seed, sim::Stream::input_lengths, ordinal, index);
    sim::Draws out(seed, sim::Stream::output_lengths, ordinal, index);
    const std::int64_t own = std::max<std::int64_t>(1, input->tokens(in));
    const std::int64_t prompt = std::min<std::int64_t>(own + client.prefix_tokens, kMaxTokens);
    rows.push_back({sim::truncate_us(now_s * 1e6, quantum_ns), index,
                    static_cast<std::int32_t>(prompt),
                    static_cast<std::int32_t>(output->tokens(out))});
  }
}

// Position of `name` in `names`, appended if it is new.
std::uint16_t intern(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::uint16_t>(found - names.begin());
  names.push_back(name);
  return static_cast<std::uint16_t>(names.size() - 1);
}

}  // namespace

void Synthetic::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (clients.empty())
    out.push_back({sim::join_path(path, "clients"), "[]", "must hold at least one client"});
  for (std::size_t i = 0; i < clients.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::string here = sim::index_path(sim::join_path(path, "clients"), i);
      if (clients[j].name == clients[i].name) {
        out.push_back({here + ".name", "'" + clients[i].name + "'", "must be unique"});
      }
      if (!clients[i].prefix_group.empty() && clients[j].prefix_group == clients[i].prefix_group &&
          clients[j].prefix_tokens != clients[i].prefix_tokens) {
        out.push_back({here + ".prefix_tokens", std::to_string(clients[i].prefix_tokens),
                       "must equal that of the group's other client (" +
                           std::to_string(clients[j].prefix_tokens) + ")"});
      }
    }
  }
}

std::shared_ptr<const Requests> generate(const Synthetic& config, std::uint64_t seed,
                                         std::int64_t quantum_ns) {
  double fractions = 0;
  for (const Client& client : config.clients) fractions += client.rate_fraction;
  const auto count = static_cast<std::size_t>(
      config.num_requests.value_or(config.duration_s ? kUnboundedCount : kDefaultCount));
  const sim::Time limit = sim::from_seconds(config.duration_s.value_or(sim::kLongestSpan_s));

  // Each client is generated in full up to the count; the earliest of all are kept.
  std::vector<Row> rows;
  for (std::uint32_t c = 0; c < config.clients.size(); ++c) {
    const Client& client = config.clients[c];
    append_rows(client, c, config.requests_per_s * client.rate_fraction / fractions, count, limit,
                seed, quantum_ns, rows);
  }
  if (config.clients.size() > 1) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.arrival < b.arrival; });
  }
  rows.resize(std::min(rows.size(), count));

  auto requests = std::make_shared<Requests>();
  const std::size_t n = rows.size();
  requests->arrival.reserve(n);
  requests->input_tokens.reserve(n);
  requests->output_tokens.reserve(n);
  requests->tenant.reserve(n);
  requests->slo_class.reserve(n);
  std::vector<std::uint16_t> tenant_of;
  std::vector<std::uint16_t> class_of;
  std::vector<Segment> prefix_of;
  std::vector<std::string> groups;
  for (const Client& client : config.clients) {
    tenant_of.push_back(intern(requests->tenants, client.tenant));
    class_of.push_back(intern(requests->slo_classes, client.slo_class));
    if (client.prefix_group.empty()) {
      prefix_of.push_back({});
    } else {
      prefix_of.push_back(
          {intern(groups, client.prefix_group), static_cast<std::uint32_t>(client.prefix_tokens)});
    }
  }
  if (!groups.empty()) requests->segment_begin.push_back(0);
  for (const Row& row : rows) {
    requests->arrival.push_back(row.arrival);
    requests->input_tokens.push_back(row.input_tokens);
    requests->output_tokens.push_back(row.output_tokens);
    requests->tenant.push_back(tenant_of[row.client]);
    requests->slo_class.push_back(class_of[row.client]);
    if (groups.empty()) continue;
    if (prefix_of[row.client].tokens > 0) requests->segments.push_back(prefix_of[row.client]);
    requests->segment_begin.push_back(static_cast<std::uint32_t>(requests->segments.size()));
  }
  return requests;
}

}  // namespace spillway::workload
