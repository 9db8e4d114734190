"""A web server on this machine that misbehaves as it is told, and data sets to fetch from it."""

import contextlib
import dataclasses
import hashlib
import http.server
import threading
import time

from hbnode.data import DataFile


@dataclasses.dataclass
class Reply:
    """What the server has at one address.

    - `ranges`: whether it continues where it is asked to.
    - `breaks`: for each request that shall break off, the bytes that it gets before.
    - `shift`: where a continued answer starts too late, by so many bytes.
    - `length`: whether it tells how much there is.
    - `delay`: seconds before it answers.
    """

    content: bytes
    ranges: bool = True
    breaks: list[int] = dataclasses.field(default_factory=list)
    shift: int = 0
    length: bool = True
    delay: float = 0.0


class Server(http.server.ThreadingHTTPServer):
    """`replies` by path; anything else is 404. `log`: path and range of every request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: dict[str, Reply] = {}
        self.log: list[tuple[str, str | None]] = []

    def handle_error(self, request, client_address):
        """Clients may hang up."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def serve(self, path: str, content: bytes, **how) -> str:
        self.replies[path] = Reply(content, **how)
        return self.url(path)


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        """Nothing on stderr."""

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        assert isinstance(server, Server)
        server.log.append((self.path, asked))
        reply = server.replies.get(self.path)
        if reply is None:
            self.send_error(404)
            return
        time.sleep(reply.delay)
        total, start = len(reply.content), 0
        if asked is not None and reply.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + reply.shift
        if start and start >= total:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{total}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if reply.length:
            self.send_header("Content-Length", str(total - start))
        self.end_headers()
        body = reply.content[start:]
        self.wfile.write(body[: reply.breaks.pop(0)] if reply.breaks else body)


@contextlib.contextmanager
def running():
    """A server for the time of a test."""
    server = Server()
    # Polled often, so that shutting it down takes no time.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def data_file(path: str, content: bytes, *urls: str, **more) -> DataFile:
    """The description of a file with these contents."""
    return DataFile(path, len(content), hashlib.sha256(content).hexdigest(), urls=urls, **more)
