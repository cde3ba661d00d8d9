"""The proxies of macOS's settings: none."""


def _get_proxy_settings() -> dict[str, str]:
    return {}


def _get_proxies() -> dict[str, str]:
    return {}
