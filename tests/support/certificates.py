"""A certificate authority of one test, and a server's certificate that it signed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """Where the PEM files lie."""

    ca_file: Path
    certificate_file: Path
    key_file: Path


def an_authority(folder: Path, host: str) -> Authority:
    """Make an authority and a certificate for `host`, good for a day."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
    ca = _certificate(issuer, issuer, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    leaf = _certificate(subject, issuer, key).add_extension(names, False)
    made = Authority(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
    for path, builder in ((made.ca_file, ca), (made.certificate_file, leaf)):
        path.write_bytes(builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    made.key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
