#include "core/comm/rank_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace shale {
namespace {

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Name name_of(const Launch& launch) {
  const std::string job = str(launch.master, ":", launch.port, "/", launch.prefix, "/", launch.rank);
  const std::string text = str("shale-rank-", hash_text(job));
  Name out;
  out.address.sun_family = AF_UNIX;
  std::memcpy(out.address.sun_path + 1, text.data(), text.size());  // the zero in front makes it abstract
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return out;
}

// The process at the other end; -1 for another user's, which has no say here.
int peer(int fd) {
  ucred who{};
  socklen_t length = sizeof who;
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0;
  return known && who.uid == geteuid() ? who.pid : -1;
}

OwnedFd local_socket() { return OwnedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

RankClaim::RankClaim(const Launch& launch) : rank_(launch.rank), socket_(local_socket()) {
  const Name name = name_of(launch);
  if (socket_ && bind(socket_.get(), name.get(), name.length) == 0 && listen(socket_.get(), 8) == 0) return;
  const bool taken = socket_ && errno == EADDRINUSE;
  socket_ = OwnedFd();
  if (!taken) return;  // a kernel without abstract sockets: the store still finds duplicates
  const OwnedFd holder = local_socket();
  const bool told = connect(holder.get(), name.get(), name.length) == 0;
  if (const int pid = told ? peer(holder.get()) : 0; pid >= 0) taken_by(pid);
}

void RankClaim::check() {
  if (!socket_) return;
  const OwnedFd rival(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!rival) return;
  if (const int pid = peer(rival.get()); pid >= 0) taken_by(pid);
}

void RankClaim::taken_by(int pid) const {
  fail(Code::dist, "start-up: duplicate rank ", rank_, ": process ", getpid(), " and ",
       pid > 0 ? str("process ", pid) : std::string("another process"), " of ", host_name(),
       " were both started as rank ", rank_, "; check RANK");
}

}  // namespace shale
